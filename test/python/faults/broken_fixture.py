"""Tests under this suite's conftest. The fixture of rank VICTIM raises or hangs, before or after the test (WHEN)."""

import os
import sys
import time
from pathlib import Path

import pytest

import horovod.torch as hvd

VICTIM, WHEN = int(os.environ["VICTIM"]), os.environ["WHEN"]


def breaks(job, when):
    if job.rank() == VICTIM and when == WHEN:
        raise ArithmeticError("the fixture is broken")
    if job.rank() == VICTIM and when == WHEN.replace("hangs ", ""):
        time.sleep(1000)


@pytest.fixture
def fixture(job):
    breaks(job, "before")
    yield
    breaks(job, "after")
    job.barrier()


def test_first(fixture):
    pass


def test_second(job):
    job.barrier()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import bounds

    hvd.init()
    bounds._LONGEST_FIXTURES_S = 3  # the real limit is too long to be waited for in a test
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "-p", "conftest", __file__]))
