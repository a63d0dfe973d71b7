"""int8 compression of PyTorch's tensors, whose errors are kept by name."""

import ctypes
import os

import pytest
import torch

import horovod.torch as hvd
from horovod.common import _lib


@pytest.fixture(autouse=True)
def job():
    hvd.init()
    yield
    hvd.shutdown()


def _hosts_apart():
    return hvd.size() > 1 and (os.environ.get("GOROVOD_TRANSPORT") == "tcp" or hvd.local_size() < hvd.size())


def _kept_bytes():
    values = (ctypes.c_int64 * 6)()  # the first ones
    assert _lib.load().gorovod_counters(values, 6) >= 6
    return values[5]


def test_int8_keeps_errors_by_name():
    torch.manual_seed(7)
    mine, steps, total = torch.randn(6000), 40, torch.zeros(6000, dtype=torch.float64)
    exact = hvd.allreduce(mine.double(), op=hvd.Sum)
    for _ in range(steps):
        total += hvd.allreduce(mine, op=hvd.Sum, name="int8.kept", compression=hvd.Compression.int8).double()
    # The errors of the first step are not kept, and those of the last step have not been sent yet.
    assert (total - steps * exact).abs().max() < 0.2 * hvd.size()
    assert _kept_bytes() == (4 * 6000 if _hosts_apart() else 0)
    once = hvd.allreduce(mine, op=hvd.Sum, name="int8.once", compression=hvd.Compression.int8)
    assert torch.equal(once, exact.float()) is not _hosts_apart()
    assert torch.allclose(once, exact.float(), atol=0.2 * hvd.size())
    hvd.shutdown()
    hvd.init()
    assert _kept_bytes() == 0


def test_int8_is_refused_by_name_where_there_is_none():
    fine = torch.ones(3)
    for refused in (
        lambda: hvd.allreduce(fine, op=hvd.Max, compression=hvd.Compression.int8),
        lambda: hvd.reducescatter(fine, compression=hvd.Compression.int8),
        lambda: hvd.allreduce(fine, op=hvd.Adasum, compression=hvd.Compression.int8),
    ):
        with pytest.raises(ValueError, match="Compression.int8 is for allreduces of float32 with Sum or Average"):
            refused()
    for dtype in (torch.int32, torch.float64, torch.float16):  # these travel as they are
        result = hvd.allreduce(fine.to(dtype), op=hvd.Sum, compression=hvd.Compression.int8)
        assert torch.equal(result, hvd.size() * fine.to(dtype))
