"""Flat shares of tensors: reduced and gathered in place."""

from __future__ import annotations

import pytest
import torch
from definitions import FLOATS, of_all, of_rank, reduced

import horovod.torch as hvd
from horovod.torch import _shares

SHAPES = [(0,), (1,), (), (3, 5), (17, 3), (70_001,)]


@pytest.fixture(autouse=True, scope="module")
def _world():
    hvd.init()


def bounds_of(rank: int, n: int) -> tuple[int, int]:
    each, rest = divmod(n, hvd.size())
    begin = each * rank + min(rank, rest)
    return begin, begin + each + (rank < rest)


def test_shares_are_all_of_a_tensor():
    for n in (0, 1, 2, 5, 1000):
        begin, end = _shares.bounds(n)
        assert (begin, end) == bounds_of(hvd.rank(), n)
        tensor = torch.arange(n)
        share = _shares.share_of(tensor)
        assert torch.equal(share, torch.arange(begin, end))
        assert share.numel() == 0 or share.data_ptr() == tensor[begin:].data_ptr()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_scatter_and_gather_are_an_allreduce(shape, dtype):
    tensor = of_rank(hvd.rank(), shape, dtype)
    before, want = tensor.clone(), reduced(of_all(shape, dtype), hvd.Sum)
    begin, end = bounds_of(hvd.rank(), tensor.numel())
    share = hvd.synchronize(_shares.scatter_async(tensor, "shares", hvd.Sum))
    assert share.dtype == dtype and torch.equal(share, want.view(-1)[begin:end])
    assert torch.equal(tensor.view(-1)[begin:end], share)  # in place
    assert torch.equal(tensor.view(-1)[:begin], before.view(-1)[:begin])
    assert torch.equal(tensor.view(-1)[end:], before.view(-1)[end:])
    whole = hvd.synchronize(_shares.gather_async(tensor, "shares"))
    assert torch.equal(tensor, want)
    assert torch.equal(whole, want.view(-1)) and whole.data_ptr() == tensor.data_ptr()


def test_groups_of_several_types():
    shapes = [(3, 5), (0,), (70_001,), (1,), (64,)]
    dtypes = [torch.float32, torch.float32, torch.float16, torch.float32, torch.float64]
    for _ in range(3):  # the second time the names are known
        tensors = [of_rank(hvd.rank(), s, d, seed=i) for i, (s, d) in enumerate(zip(shapes, dtypes))]
        wants = [reduced(of_all(s, d, seed=i), hvd.Average) for i, (s, d) in enumerate(zip(shapes, dtypes))]
        shares = hvd.synchronize(_shares.grouped_scatter_async(tensors, "several", names=list("abcde")))
        for share, want in zip(shares, wants):
            begin, end = bounds_of(hvd.rank(), want.numel())
            torch.testing.assert_close(share, want.view(-1)[begin:end])
        hvd.synchronize(_shares.grouped_gather_async(tensors, "several", names=list("abcde")))
        for tensor, want in zip(tensors, wants):
            torch.testing.assert_close(tensor, want)


def test_shares_have_the_bits_of_allreduce():
    """All ranks are on one host."""
    generator = torch.Generator().manual_seed(hvd.rank())
    tensors = [torch.randn(n, generator=generator) for n in (5, 1000, 100_003, 9)]
    sums = hvd.synchronize(hvd.grouped_allreduce_async([t.clone() for t in tensors], op=hvd.Average, name="bits"))
    hvd.synchronize(_shares.grouped_scatter_async(tensors, "bits"))
    hvd.synchronize(_shares.grouped_gather_async(tensors, "bits"))
    for tensor, want in zip(tensors, sums):
        assert torch.equal(tensor.view(torch.int32), want.view(torch.int32))


def test_bad_tensors_are_refused():
    with pytest.raises(ValueError, match="contiguous"):
        _shares.scatter_async(torch.zeros(4, 4).t())
    with pytest.raises(ValueError, match="contiguous"):
        _shares.gather_async(torch.zeros(4, 4).t())
    with pytest.raises(TypeError):
        _shares.gather_async([1.0])
    with pytest.raises(hvd.HorovodInternalError, match="AVERAGE and SUM"):
        _shares.scatter_async(torch.zeros(4), op=hvd.Max)
