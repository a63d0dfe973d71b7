"""Tests of the Python interface: run them as one job, ``horovodrun -np N python3 -m pytest test/python``.

Every rank runs the same tests in the same order.
"""

import sys
from pathlib import Path

import pytest
from bounds import (  # noqa: F401
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
pytest.register_assert_rewrite("definitions")


@pytest.fixture(scope="module")
def job():
    """The initialised front end. Tests that leave the job must join it again."""
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    yield hvd
    hvd.shutdown()


@pytest.fixture
def by_ctypes():
    """Only the Python path. Tests need it whose tensors pretend to be elsewhere: the extension reads the real ones."""
    from horovod.torch._submission import native

    if native is not None:
        native.enable(False)
    yield
    if native is not None:
        native.enable(True)
