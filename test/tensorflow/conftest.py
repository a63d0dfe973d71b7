"""Tests of the TensorFlow interface: run them as one job, ``horovodrun -np N python3 -m pytest test/tensorflow``.

Every rank runs the same tests in the same order. TensorFlow has one thread for operations, so an operation that blocks
its thread would hang here.
"""

import os
import sys
from pathlib import Path

import pytest

_TEST = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TEST.parent / "python"), str(_TEST / "python")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# With oneDNN the results of ranks may differ by rounding, and could not be compared.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Sets can be added, and several tests do.
os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

from bounds import (  # noqa: E402, F401
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)

pytest.register_assert_rewrite("worlds")


@pytest.fixture(scope="module")
def job():
    """The initialised front end. Tests that leave the job must join it again."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    yield hvd
    hvd.shutdown()


@pytest.fixture
def evens(job):
    """The process set of the ranks with an even number; removed after the test."""
    ranks = job.ProcessSet(range(0, job.size(), 2))
    if job.size() == 1:
        pytest.skip("one rank has no other set than the world")
    job.add_process_set(ranks)
    yield ranks
    job.remove_process_set(ranks)
