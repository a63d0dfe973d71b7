"""What keeps a job of tests from hanging, as hooks for a conftest.py: a rank that has failed a test, or cannot finish
one, is out of step with the others: it ends, so that they hear of it and the job ends."""

import contextlib
import faulthandler
import os
import sys

import pytest

_LONGEST_TEST_S = 120
# Of fixtures before or after a test. Init gives up by itself after 30 s, with an error that tells more.
_LONGEST_FIXTURES_S = 40

_stderr = None


def pytest_configure(config):
    global _stderr
    _stderr = os.dup(sys.__stderr__.fileno())  # not captured yet
    if int(os.environ.get("HOROVOD_SIZE", "1")) > 1:
        config.option.maxfail = 1
    config.addinivalue_line("markers", "longest(seconds): a test that may take longer than others do")


@contextlib.contextmanager
def _bounded(seconds):
    """End the process, with the stacks of its threads, if this takes longer."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup():
    with _bounded(_LONGEST_FIXTURES_S):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    longest = item.get_closest_marker("longest")
    with _bounded(longest.args[0] if longest else _LONGEST_TEST_S):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown():
    with _bounded(_LONGEST_FIXTURES_S):
        yield
