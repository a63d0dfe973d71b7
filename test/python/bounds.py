"""Hooks for a conftest.py that keep a job of tests from hanging.

A rank that fails a test, or does not finish one in time, is out of step with the others. It exits, so that the others
get an error and the job ends.
"""

import contextlib
import faulthandler
import os
import sys

import pytest

_LONGEST_TEST_S = 120
# The limit of the fixtures before or after a test. Init gives up after 30 s, with an error that says more.
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
    """Print the stacks of all threads and exit if the block takes longer than ``seconds``."""
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
