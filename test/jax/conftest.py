"""Tests of the JAX interface: run them as one job, ``horovodrun -np N python3 -m pytest test/jax``.

Every rank runs the same tests in the same order.
"""

import os
import sys
from pathlib import Path

import pytest

_TEST = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TEST.parent / "python"), str(_TEST / "python")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

from bounds import (  # noqa: E402, F401
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)


@pytest.fixture(scope="module")
def job():
    """The initialised front end. Tests that leave the job must join it again."""
    pytest.importorskip("jax")
    import horovod.jax as hvd

    hvd.init()
    yield hvd
    hvd.shutdown()
