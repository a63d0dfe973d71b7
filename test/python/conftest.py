"""Tests of the Python interface: run them as one job, ``horovodrun -np N python3 -m pytest test/python``.

Every rank runs the same tests in the same order. A rank that has failed a test, or cannot finish one, is out of step:
it ends, so that the others hear of it and the job ends.
"""

import contextlib
import faulthandler
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
pytest.register_assert_rewrite("definitions")

_LONGEST_TEST_S = 120
# Of fixtures before or after a test. Init gives up by itself after 30 s, with an error that tells more.
_LONGEST_FIXTURES_S = 40

_stderr = None


def pytest_configure(config):
    global _stderr
    _stderr = os.dup(sys.__stderr__.fileno())  # not captured yet
    if int(os.environ.get("HOROVOD_SIZE", "1")) > 1:
        config.option.maxfail = 1


@pytest.fixture(scope="session")
def job():
    """The initialised front end. Tests that leave the job must join it again."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    yield hvd
    hvd.shutdown()


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
def pytest_runtest_call():
    with _bounded(_LONGEST_TEST_S):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown():
    with _bounded(_LONGEST_FIXTURES_S):
        yield
