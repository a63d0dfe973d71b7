"""Large outputs that the engine allocates: tensors on its memory must be like any others."""

import copy
import gc
import io
import multiprocessing
import pickle
from pathlib import Path

import pytest
import torch
from definitions import DTYPES, check, of_all, reduced, rejoin

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

ROWS = 30_011  # of each rank


def gathered(dtype=torch.float32):
    """What allgather returns, and what it should."""
    inputs = of_all((ROWS, 3), dtype)
    return hvd.allgather(inputs[hvd.rank()]), torch.cat(inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values(dtype):
    n = hvd.size()
    result, expected = gathered(dtype)
    check(result, expected)
    assert result.is_contiguous()
    inputs = of_all((ROWS * n, 3), dtype, low=-2, high=3)
    mine, rows = inputs[hvd.rank()], slice(ROWS * hvd.rank(), ROWS * (hvd.rank() + 1))
    check(hvd.alltoall(mine), torch.cat([t[rows] for t in inputs]))
    check(hvd.reducescatter(mine, op=hvd.Sum), reduced(inputs, hvd.Sum)[rows])
    first, second = hvd.grouped_allgather([mine, mine[:1]])
    check(first, torch.cat(inputs))
    check(second, torch.cat([t[:1] for t in inputs]))


@pytest.mark.parametrize("size", [(1 << 16) - 4, 1 << 16, (1 << 16) + 4])
def test_sizes_at_the_limit(size):
    elements = size // 4  # of the result: the last rank sends the rest
    share = elements // hvd.size()
    mine = share if hvd.rank() < hvd.size() - 1 else elements - share * (hvd.size() - 1)
    check(hvd.allgather(torch.ones(mine)), torch.ones(elements))


def test_in_place_operations():
    result, expected = gathered()
    result.mul_(2).add_(1)
    result[0] = 7
    expected = expected * 2 + 1
    expected[0] = 7
    check(result, expected)
    check(result.t().contiguous().t(), expected)
    result.set_(torch.ones(3))
    check(result, torch.ones(3))


def test_resize():
    result, expected = gathered()
    result.resize_(5, 3)
    check(result, expected[:5])
    with pytest.raises(RuntimeError, match="not resizable"):
        result.resize_(10 * ROWS * hvd.size(), 3)  # as with torch.from_numpy


def test_autograd_takes_it_for_no_view():
    result, _ = gathered()
    assert not result._is_view()
    result.requires_grad_()
    (result * result).sum().backward()
    check(result.grad, 2 * result.detach())
    mine = torch.full((ROWS, 3), 2.0, requires_grad=True)
    result = hvd.allgather(mine)
    result.mul_(3.0)  # which would be refused for a view
    result.sum().backward()
    check(mine.grad, torch.full((ROWS, 3), 3.0))
    result, _ = hvd.alltoall(torch.ones(hvd.size() * ROWS, requires_grad=True), [ROWS] * hvd.size())
    result.mul_(2.0)


def test_copies():
    result, expected = gathered()
    check(pickle.loads(pickle.dumps(result)), expected)
    check(copy.deepcopy(result), expected)
    check(torch.from_numpy(result.numpy()), expected)
    file = io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    check(torch.load(file), expected)
    result.share_memory_()
    assert result.is_shared()
    check(result, expected)
    pipe, end = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=lambda: end.send(float(result.double().sum())))
    child.start()
    assert pipe.poll(20)
    assert pipe.recv() == float(expected.double().sum())
    child.join(20)


def test_it_outlives_the_job():
    result, expected = gathered()
    view = result[1:]
    handle = hvd.allgather_async(torch.ones(ROWS), name="never fetched")
    rejoin()
    check(result, expected)
    del result, handle
    gathered()
    check(view, expected[1:])


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) << 12


def test_it_is_freed_once():
    mine = torch.ones(1 << 20)
    before = None
    for i in range(60):
        result = hvd.allgather(mine)
        numbers = result.numpy()[:10]  # holds the memory
        del result
        assert numbers.tolist() == [1.0] * 10
        del numbers
        hvd.synchronize(hvd.alltoall_async(torch.ones(hvd.size() << 18)))
        if i == 10:
            gc.collect()
            before = resident()
    assert resident() - before < 50 * mine.numel() * hvd.size()  # a quarter of what the allgathers alone could leak
