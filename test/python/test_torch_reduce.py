"""Reductions to one rank."""

from __future__ import annotations

import pytest
import torch

import horovod.torch as hvd

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
          torch.float64]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _world():
    hvd.init()


def mine(dtype: torch.dtype = torch.float32, n: int = 5) -> torch.Tensor:
    return (torch.arange(n) % 3 + 1 + hvd.rank()).to(dtype)


def sums(n: int = 5) -> torch.Tensor:
    size = hvd.size()
    return (torch.arange(n) % 3 + 1) * size + size * (size - 1) // 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_root_alone_has_the_sum(dtype):
    for root in range(hvd.size()):
        tensor = mine(dtype)
        result = hvd.reduce(tensor, root, op=hvd.Sum)
        assert result.dtype == dtype and result.data_ptr() != tensor.data_ptr()
        assert torch.equal(tensor, mine(dtype))  # the input is as it was
        assert torch.equal(result, sums().to(dtype) if hvd.rank() == root else tensor)


@pytest.mark.parametrize("n", [0, 1, 100_000])
def test_in_place_leaves_the_others_alone(n):
    root = hvd.size() - 1
    tensor = mine(n=n)
    assert hvd.reduce_(tensor, root, op=hvd.Sum) is tensor
    assert torch.equal(tensor, sums(n).float() if hvd.rank() == root else mine(n=n))


@pytest.mark.parametrize("op", ["Average", "Min", "Max", "Product"])
def test_operations(op):
    result = hvd.reduce(mine(torch.float64), 0, op=getattr(hvd, op))
    all_ranks = torch.stack([mine(torch.float64) - hvd.rank() + r for r in range(hvd.size())])
    wants = {
        "Average": all_ranks.mean(0), "Min": all_ranks.min(0).values, "Max": all_ranks.max(0).values,
        "Product": all_ranks.prod(0),
    }  # fmt: skip
    assert torch.allclose(result, wants[op] if hvd.rank() == 0 else mine(torch.float64))


def test_average_is_the_default_and_factors_count():
    result = hvd.reduce(mine(), 0, prescale_factor=4.0, postscale_factor=0.5)
    assert torch.allclose(result, 2 * sums() / hvd.size() if hvd.rank() == 0 else mine())


def test_handles_and_names():
    handles = [hvd.reduce_async(mine() * i, 0, name=f"r.{i}", op=hvd.Sum) for i in range(1, 20)]
    other = mine()
    handle = hvd.reduce_async_(other, hvd.size() - 1, op=hvd.Sum)
    for i, h in enumerate(handles, 1):
        assert torch.equal(hvd.synchronize(h), i * sums().float() if hvd.rank() == 0 else i * mine())
    assert hvd.synchronize(handle) is other


def test_result_of_others_is_what_was_given():
    tensor = mine()
    handle = hvd.reduce_async(tensor, 0, op=hvd.Sum)
    result = hvd.synchronize(handle)
    tensor.zero_()
    assert result.abs().sum() > 0


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_gradient_is_the_roots(op):
    root = hvd.size() - 1
    tensor = mine(torch.float64).requires_grad_()
    result = hvd.reduce(tensor, root, op=getattr(hvd, op), prescale_factor=3.0)
    (result * (10.0 if hvd.rank() == root else -7.0)).sum().backward()
    assert torch.allclose(tensor.grad, torch.full((5,), 30.0 / (hvd.size() if op == "Average" else 1)).double())


def test_other_gradients_are_refused():
    tensor = mine().requires_grad_()
    result = hvd.reduce(tensor, 0, op=hvd.Max)
    with pytest.raises(NotImplementedError, match="differentiable"):
        result.sum().backward()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="invalid root rank"):
        hvd.reduce(mine(), hvd.size())
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.reduce(mine(), 0, op=hvd.Adasum)
    with pytest.raises(ValueError, match="unknown reduce operation"):
        hvd.reduce(mine(), 0, op=17)
    with pytest.raises(ValueError, match="contiguous"):
        hvd.reduce(torch.ones(4, 4).t(), 0)
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        hvd.reduce([1.0], 0)
    with pytest.raises(ValueError, match="bool"):
        hvd.reduce(torch.ones(3, dtype=torch.bool), 0, prescale_factor=2.0)


def test_bool():
    tensor = torch.tensor([hvd.rank() == 0, False, True])
    result = hvd.reduce(tensor, 0, op=hvd.Sum)
    assert torch.equal(result, torch.tensor([True, False, True]) if hvd.rank() == 0 else tensor)


@pytest.mark.skipif("hvd.size() == 1")
def test_mismatches_fail_on_all():
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched REDUCE root ranks"):
        hvd.reduce(mine(), hvd.rank() % 2, name="roots")
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched reduction operation"):
        hvd.reduce(mine(), 0, name="ops", op=hvd.Sum if hvd.rank() == 0 else hvd.Average)
    assert torch.equal(hvd.reduce(mine(), 0, op=hvd.Sum), sums().float() if hvd.rank() == 0 else mine())


def test_tensor_whose_memory_does_not_hold_its_values():
    tensor = torch.view_as_complex(torch.stack([mine(), mine()], -1)).conj().imag  # negated when it is read
    assert tensor.is_neg()
    flat = tensor.contiguous() if not tensor.is_contiguous() else tensor
    before = flat.clone()
    result = hvd.reduce(flat, 0, op=hvd.Sum)
    assert torch.equal(result, -sums().float() if hvd.rank() == 0 else before)
    assert torch.equal(flat, before)


@pytest.mark.skipif("hvd.size() == 1")
def test_join():
    last = hvd.size() - 1
    if hvd.rank() == last:
        assert torch.equal(hvd.reduce(mine(), last, op=hvd.Sum), mine())  # the others give zeros
        with pytest.raises(hvd.HorovodInternalError, match="Reduce to a root rank that has joined is not possible"):
            hvd.reduce(mine(), 0, op=hvd.Sum)
    assert hvd.join() == last
