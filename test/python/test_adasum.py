"""op=Adasum against its definition: arXiv:2006.02924, in float64 and one tensor at a time."""

import numpy as np
import pytest
import torch
from definitions import FLOATS, adasum, of_all, pair, several, works

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 1e-5, torch.float64: 1e-12}


def expected(tensors, scale=1.0):
    return torch.from_numpy(np.asarray(scale * adasum([t.double().numpy() for t in tensors])))


def close(result, tensors, scale=1.0):
    assert result.dtype == tensors[0].dtype
    assert result.shape == tensors[0].shape
    tolerance = TOLERANCE[result.dtype]
    torch.testing.assert_close(result.double(), expected(tensors, scale), rtol=tolerance, atol=10 * tolerance)


def test_the_definition():
    a, b, c = np.array([3.0, 0.0]), np.array([0.0, 4.0]), np.array([3.0, 0.0])
    assert pair(a, b).tolist() == [3, 4]
    assert pair(a, c).tolist() == [3, 0]
    assert pair(a, 0 * a).tolist() == [3, 0]
    assert adasum([a, b, c]).tolist() == [3, 4]  # a and c first
    assert adasum([a, c, b, b]).tolist() == [3, 4]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_adasum(dtype):
    for i, shape in enumerate([(1,), (17,), (3, 5), (0,), (), (70_001,)]):
        tensors = of_all(shape, dtype, seed=i)
        before = tensors[hvd.rank()]
        mine = before.clone()
        close(hvd.allreduce(mine, op=hvd.Adasum), tensors)
        close(hvd.synchronize(hvd.allreduce_async(mine, op=hvd.Adasum)), tensors)
        assert torch.equal(mine, before)
        assert hvd.allreduce_(mine, op=hvd.Adasum) is mine
        close(mine, tensors)


def test_special_cases():
    n, r = hvd.size(), hvd.rank()
    same = torch.arange(5.0)
    torch.testing.assert_close(hvd.allreduce(same, op=hvd.Adasum), same)  # averaged
    torch.testing.assert_close(hvd.allreduce(torch.eye(n)[r], op=hvd.Adasum), torch.ones(n))  # added
    assert hvd.allreduce(torch.zeros(3), op=hvd.Adasum).tolist() == [0, 0, 0]
    one = torch.full((3,), 2.0 if r == 0 else 0.0)
    assert hvd.allreduce(one, op=hvd.Adasum).tolist() == [2, 2, 2]


def test_ranks_get_the_same_bits():
    result = hvd.allreduce(of_all((1001,), torch.float32)[hvd.rank()] / 3, op=hvd.Adasum)
    everyone = hvd.allgather(result[None])
    assert bool((everyone == everyone[0]).all())


def test_each_tensor_of_a_buffer_by_itself():
    """Small tensors are fused, but each has its own coefficients."""
    tensors = [of_all((3 + i,), torch.float32, seed=i) for i in range(20)]
    group = hvd.grouped_allreduce([t[hvd.rank()] for t in tensors], op=hvd.Adasum)
    handles = [hvd.allreduce_async(t[hvd.rank()], name=f"adasum.{i}", op=hvd.Adasum) for i, t in enumerate(tensors)]
    for i, t in enumerate(tensors):
        close(group[i], t)
        close(hvd.synchronize(handles[i]), t)


def test_factors_and_compression():
    tensors = of_all((9,), torch.float32)
    mine = tensors[hvd.rank()]
    # Adasum of scaled vectors is the scaled Adasum.
    close(hvd.allreduce(mine, op=hvd.Adasum, prescale_factor=2.0, postscale_factor=0.25), tensors, 0.5)
    result = hvd.allreduce(mine, op=hvd.Adasum, compression=hvd.Compression.fp16)
    torch.testing.assert_close(result.double(), expected(tensors), rtol=1e-2, atol=1e-1)


def test_gradient():
    tensors, gradients = of_all((4,), torch.float64), of_all((4,), torch.float64, seed=1)
    x = tensors[hvd.rank()].clone().requires_grad_()
    hvd.allreduce(x, op=hvd.Adasum).backward(gradients[hvd.rank()])
    close(x.grad, gradients)


def test_errors():
    for dtype in (torch.int32, torch.uint8, torch.bool):
        with pytest.raises(ValueError, match="floating-point"):
            hvd.allreduce(torch.ones(3, dtype=dtype), op=hvd.Adasum)
    with pytest.raises(NotImplementedError, match="Adasum does not support non-global process sets yet"):
        hvd.allreduce(torch.ones(3), op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    works()


@several()
def test_mismatches():
    for _ in range(2):
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ADASUM tensor shapes"):
            hvd.allreduce(torch.ones(3 + hvd.rank()), name="m.adasum", op=hvd.Adasum)
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched operations"):
            hvd.allreduce(torch.ones(3), name="m.adasum", op=hvd.Adasum if hvd.rank() else hvd.Sum)
        works()


@several()
def test_a_joined_rank_changes_nothing():
    """Its zeros are orthogonal to all."""
    tensors = of_all((6,), torch.float64)
    if hvd.rank() != 0:
        close(hvd.allreduce(tensors[hvd.rank()], name="joined", op=hvd.Adasum), [tensors[0] * 0, *tensors[1:]])
    hvd.join()
