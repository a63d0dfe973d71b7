"""The inputs of each rank and the expected results of the collectives, shared by the tests."""

import functools
import itertools
import operator

import numpy as np
import pytest
import torch

import horovod.torch as hvd
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.torch import _submission

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES = [*INTEGERS, *FLOATS, torch.bool]
SHAPES = [(), (0,), (1,), (17,), (3, 5), (2, 0, 3), (4, 3, 2), (2, 3, 2, 3)]
OPS = {"Average": hvd.Average, "Sum": hvd.Sum, "Min": hvd.Min, "Max": hvd.Max, "Product": hvd.Product}


def several():
    return pytest.mark.skipif(hvd_size() == 1, reason="needs two ranks")


def hvd_size():
    """The size from the environment, so that it is known before init."""
    return get_env_rank_and_size()[1]


def of_rank(rank, shape, dtype, low=-5, high=6, seed=0):
    """What ``rank`` contributes: small whole numbers, so that sums and products are exact in every dtype."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype in (torch.uint8, torch.bool):
        low, high = 0, 2 if dtype is torch.bool else high
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def of_all(*args, **kwargs):
    return [of_rank(r, *args, **kwargs) for r in range(hvd.size())]


def reduced(tensors, op):
    """The definition of allreduce, in float64, where these numbers are exact."""
    wide = [t.to(torch.float64) for t in tensors]
    if op in (hvd.Sum, hvd.Average):
        result = functools.reduce(operator.add, wide)
        result = result / len(wide) if op == hvd.Average else result
    else:
        pairwise = {hvd.Min: torch.minimum, hvd.Max: torch.maximum, hvd.Product: operator.mul}[op]
        result = functools.reduce(pairwise, wide)
    return result.to(tensors[0].dtype)


def check(actual, expected):
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype.is_floating_point:
        torch.testing.assert_close(actual, expected)
    else:
        assert torch.equal(actual, expected)


def pair(a, b):
    """Adasum of two vectors: orthogonal vectors are added, equal ones averaged."""
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    tiny = np.sqrt(np.finfo(np.float64).tiny)
    return (1 if aa < tiny else 1 - dot / (2 * aa)) * a + (1 if bb < tiny else 1 - dot / (2 * bb)) * b


def adasum(vectors):
    """Adasum of one vector per rank, as a tree. Vectors beyond a power of two are first combined with leading ones."""
    power = 1 << (len(vectors).bit_length() - 1)
    level = [pair(a, b) for a, b in zip(vectors, vectors[power:])] + vectors[len(vectors) - power : power]
    while len(level) > 1:
        level = [pair(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def works(name=None):
    """Check that the job works, for example after an error."""
    check(hvd.allreduce(torch.ones(2), name=name, op=hvd.Sum), torch.full((2,), float(hvd.size())))


def mismatch(match, submit):
    """Check that ``submit(odd)`` raises a matching error on every rank. ``odd`` is true on the last rank."""
    for _ in range(2):
        with pytest.raises(hvd.HorovodInternalError, match=match):
            submit(hvd.rank() == hvd.size() - 1)
        works()


def under_way():
    """How many operations of this rank have been submitted and not ended. Any thread may call it."""
    return hvd.metrics()["pending"]


def in_step():
    """Number unnamed operations alike on all ranks again. Operations on a set use up numbers on its members only."""
    _submission._handles = itertools.count(int(hvd.allreduce(torch.tensor(_peek()), name="in_step", op=hvd.Max)) + 5)


def _peek():
    return next(_submission._handles)


def rejoin(**arguments):
    """Leave the job and join it again with these arguments of init. All ranks must call it together."""
    hvd.barrier()
    hvd.shutdown()
    hvd.init(**arguments)
