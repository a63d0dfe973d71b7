"""Compressions of PyTorch's tensors whose errors are kept by name."""

import ctypes
import os
import pickle

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


@pytest.fixture(params=["int8", "fp8"])
def form(request):
    return request.param


# The largest error of a number in a sum of 40, which has numbers of up to 8.
ONCE = {"int8": 0.2, "fp8": 0.6}


def test_errors_are_kept_by_name(form):
    torch.manual_seed(7)
    compression = getattr(hvd.Compression, form)
    mine, steps, total = torch.randn(6000), 40, torch.zeros(6000, dtype=torch.float64)
    exact = hvd.allreduce(mine.double(), op=hvd.Sum)
    for _ in range(steps):
        total += hvd.allreduce(mine, op=hvd.Sum, name=f"{form}.kept", compression=compression).double()
    # The errors of the first step are not kept, and those of the last step have not been sent yet.
    assert (total - steps * exact).abs().max() < ONCE[form] * hvd.size()
    assert _kept_bytes() == (4 * 6000 if _hosts_apart() else 0)
    once = hvd.allreduce(mine, op=hvd.Sum, name=f"{form}.once", compression=compression)
    assert torch.equal(once, exact.float()) is not _hosts_apart()
    assert torch.allclose(once, exact.float(), atol=ONCE[form] * hvd.size())
    hvd.shutdown()
    hvd.init()
    assert _kept_bytes() == 0


def test_they_are_refused_by_name_where_they_cannot_be(form):
    fine = torch.ones(3)
    compression = getattr(hvd.Compression, form)
    for refused in (
        lambda: hvd.allreduce(fine, op=hvd.Max, compression=compression),
        lambda: hvd.reducescatter(fine, compression=compression),
        lambda: hvd.allreduce(fine, op=hvd.Adasum, compression=compression),
    ):
        with pytest.raises(ValueError, match=f"Compression.{form} is for allreduces of float32 with Sum or Average"):
            refused()
    for dtype in (torch.int32, torch.float64, torch.float16):  # these travel as they are
        result = hvd.allreduce(fine.to(dtype), op=hvd.Sum, compression=compression)
        assert torch.equal(result, hvd.size() * fine.to(dtype))


def test_they_are_found_by_name(form):
    compression = getattr(hvd.Compression, form)
    assert form in dir(hvd.Compression)
    assert pickle.loads(pickle.dumps(compression)) is compression
    assert compression is getattr(hvd.compression, f"{form.upper()}Compressor")
    with pytest.raises(AttributeError, match="hvd.Compression has no 'int4'; there are none, fp16, bf16, int8, fp8"):
        _ = hvd.Compression.int4
    with pytest.raises(AttributeError, match="has no attribute 'INT4'"):
        _ = hvd.compression.INT4
