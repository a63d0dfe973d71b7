"""Tests of the Python interface: run them as one job, ``horovodrun -np N python3 -m pytest test/python``.

Every rank runs the same tests in the same order. A test that a rank cannot finish ends that rank, so that the others
hear of it and the job ends.
"""

import faulthandler
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

_LONGEST_TEST_S = 120


@pytest.fixture(scope="session")
def job():
    """The initialised front end. Tests that leave the job must join it again."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    yield hvd
    hvd.shutdown()


@pytest.fixture(autouse=True)
def bounded():
    """End the process, with the stacks of its threads, if a test hangs."""
    faulthandler.dump_traceback_later(_LONGEST_TEST_S, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()
