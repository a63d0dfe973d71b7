"""Collectives on tensors, against their definition."""

import functools
import gc
import operator
import os
import random
import shutil
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch
from definitions import (
    DTYPES,
    FLOATS,
    INTEGERS,
    OPS,
    SHAPES,
    check,
    mismatch,
    of_all,
    of_rank,
    reduced,
    several,
    works,
)

import horovod.torch as hvd
from horovod.common import _cells, _lib
from horovod.torch import _staging, _submission, mpi_ops

pytestmark = pytest.mark.usefixtures("job")

# ---- allreduce


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("dtype", "op"),
    [(t, op) for t in DTYPES for op in OPS if (t, op) != (torch.bool, "Average")],  # bools have no average
    ids=str,
)
def test_allreduce(dtype, op):
    op = OPS[op]
    for shape in SHAPES:
        inputs = of_all(shape, dtype, low=-2, high=3)
        expected = reduced(inputs, op)
        mine = inputs[hvd.rank()]
        before = mine.clone()
        check(hvd.allreduce(mine, op=op), expected)
        check(mine, before)
        check(hvd.synchronize(hvd.allreduce_async(mine, op=op)), expected)
        check(mine, before)
        result = hvd.allreduce_(mine, op=op)
        assert result is mine
        check(mine, expected)
        mine.copy_(before)
        assert hvd.synchronize(hvd.allreduce_async_(mine, op=op)) is mine
        check(mine, expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_average_of_integers_truncates_toward_zero(dtype):
    sign = 1 if dtype is torch.uint8 else -1
    mine = torch.full((3,), sign if hvd.rank() == 0 else 0, dtype=dtype)
    expected = sign if hvd.size() == 1 else 0
    assert hvd.allreduce(mine).tolist() == [expected] * 3


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_scaling(dtype):
    inputs = of_all((7,), dtype, low=0, high=9)
    mine = inputs[hvd.rank()]
    pre, post = 0.5, 3.0
    # Each input is scaled before the sum, and truncated if it is an integer.
    scaled = [(t.to(torch.float64) * pre) for t in inputs]
    if not dtype.is_floating_point:
        scaled = [t.trunc() for t in scaled]
    expected = (functools.reduce(operator.add, scaled) * post).to(dtype)
    result = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=pre, postscale_factor=post)
    check(result, expected)


def test_average_argument():
    ones = torch.ones(3)
    with pytest.deprecated_call():
        check(hvd.allreduce(ones, average=False), ones * hvd.size())
    with pytest.deprecated_call():
        check(hvd.allreduce_(ones.clone(), average=True), ones)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(hvd.allreduce(ones), ones)
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_):
        with pytest.raises(ValueError, match="op parameter supersedes average"):
            call(ones, average=True, op=hvd.Sum)


def test_large_tensor():
    n = 5_000_011
    mine = torch.arange(n, dtype=torch.float32).remainder_(1000).add_(hvd.rank())
    result = hvd.allreduce(mine, op=hvd.Sum)
    check(result, mine * hvd.size() + sum(range(hvd.size())) - hvd.rank() * hvd.size())


def test_compression():
    mine = of_rank(hvd.rank(), (9,), torch.float32)
    result = hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16)
    check(result, reduced(of_all((9,), torch.float32), hvd.Sum))
    compressed, ctx = hvd.Compression.fp16.compress(mine)
    assert (compressed.dtype, ctx) == (torch.float16, torch.float32)
    whole = torch.ones(3, dtype=torch.int64)
    assert hvd.Compression.fp16.compress(whole)[0] is whole
    check(hvd.allreduce(whole, op=hvd.Max, compression=hvd.Compression.fp16), whole)


COMPRESSORS = (hvd.Compression.fp16, hvd.Compression.bf16)


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_compression_rounds_between_hosts_only(compression, dtype):
    fine = 1 + 2.0**-12  # no 16-bit float
    if hvd.size() == 1 or (os.environ.get("GOROVOD_TRANSPORT") != "tcp" and hvd.local_size() == hvd.size()):
        expected = fine
    else:
        expected = 1.0

    def check_all(result, value):
        torch.testing.assert_close(result, torch.full_like(result, value), rtol=1e-6, atol=0)

    mine = torch.full((5,), fine, dtype=dtype)
    for op, factor in ((hvd.Sum, hvd.size()), (hvd.Average, 1)):
        result = hvd.allreduce(mine, op=op, compression=compression)
        assert result.dtype is dtype
        check_all(result, factor * expected)
        for result in hvd.grouped_allreduce([mine, mine.float()], op=op, compression=compression):
            check_all(result, factor * expected)
        check_all(mine, fine)
        # The next operation without compression has none.
        check_all(hvd.allreduce(mine, op=op), factor * fine)
    mine.requires_grad_()
    hvd.allreduce(mine, op=hvd.Sum, compression=compression).backward(torch.full((5,), fine, dtype=dtype))
    check_all(mine.grad, hvd.size() * expected)


def test_compression_by_the_front_end():
    class Doubling(hvd.Compression.fp16):  # a user's class, although it derives from a built-in one
        @staticmethod
        def compress(tensor):
            return tensor * 2, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor / 2

    fine = torch.full((3,), 1 + 2.0**-12)
    check(hvd.allreduce(fine, op=hvd.Average, compression=Doubling), fine)
    for compression in COMPRESSORS:
        assert torch.equal(hvd.allreduce(fine, op=hvd.Max, compression=compression), torch.ones(3))
        compressed, ctx = compression.compress(fine)
        assert compressed.element_size() == 2
        assert torch.equal(compression.decompress(compressed, ctx), torch.ones(3))
    halves = torch.ones(3, dtype=torch.float16)
    assert hvd.Compression.bf16.compress(halves)[0] is halves


@several()
def test_compression_must_agree():
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched compression: One rank sent compression fp16"):
        hvd.allreduce(torch.ones(3), compression=COMPRESSORS[min(hvd.rank(), 1)])


# ---- allgather


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_allgather(dtype):
    for rest in [(), (3,), (2, 3)]:
        inputs = of_all((4, *rest), dtype)
        check(hvd.allgather(inputs[hvd.rank()]), torch.cat(inputs))
        # As many rows as the rank's number: none on rank 0.
        inputs = [of_rank(r, (r, *rest), dtype) for r in range(hvd.size())]
        check(hvd.synchronize(hvd.allgather_async(inputs[hvd.rank()])), torch.cat(inputs))


def test_allgather_of_nothing():
    check(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3))


def test_allgather_large():
    mine = torch.full((300_000, 3), float(hvd.rank()))
    result = hvd.allgather(mine).view(hvd.size(), -1)
    for r in range(hvd.size()):
        assert bool((result[r] == r).all())


# ---- broadcast


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_broadcast(dtype):
    for root in range(hvd.size()):
        for shape in SHAPES:
            inputs = of_all(shape, dtype)
            mine, expected = inputs[hvd.rank()], inputs[root]
            before = mine.clone()
            check(hvd.broadcast(mine, root), expected)
            check(hvd.synchronize(hvd.broadcast_async(mine, root)), expected)
            check(mine, before)
            assert hvd.broadcast_(mine, root) is mine
            check(mine, expected)
            mine.copy_(before)
            assert hvd.synchronize(hvd.broadcast_async_(mine, root)) is mine
            check(mine, expected)


def test_barrier_waits_for_the_last():
    # Each rank leaves a file before the barrier; after it, all are there.
    directory = Path(hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None))
    for i in range(5):
        (directory / f"{i}.{hvd.rank()}").touch()
        hvd.barrier() if i % 2 else hvd.barrier(hvd.global_process_set)
        assert len(list(directory.glob(f"{i}.*"))) == hvd.size()
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(directory)


# ---- gradients


def test_gradient_of_allreduce():
    for op, pre, post in [(hvd.Sum, 1.0, 1.0), (hvd.Average, 1.0, 1.0), (hvd.Sum, 2.0, 3.0)]:
        x = of_rank(hvd.rank(), (3, 2), torch.float64).requires_grad_()
        gradients = of_all((3, 2), torch.float64, seed=1)
        y = hvd.allreduce(x, op=op, prescale_factor=pre, postscale_factor=post)
        assert y.requires_grad
        y.backward(gradients[hvd.rank()])
        check(x.grad, reduced(gradients, op) * pre * post)


def test_gradient_through_compression():
    x = torch.ones(4, requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    check(x.grad, torch.full((4,), float(hvd.size())))


def test_gradient_of_allgather():
    rows = [r + 1 for r in range(hvd.size())]
    x = torch.ones(rows[hvd.rank()], 2, dtype=torch.float64, requires_grad=True)
    gradients = of_all((sum(rows), 2), torch.float64, seed=2)
    hvd.allgather(x).backward(gradients[hvd.rank()])
    start = sum(rows[: hvd.rank()])
    check(x.grad, reduced(gradients, hvd.Average)[start : start + rows[hvd.rank()]])


def test_gradient_of_broadcast():
    root = hvd.size() - 1
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    gradients = of_all((3,), torch.float64, seed=3)
    hvd.broadcast(x, root).backward(gradients[hvd.rank()])
    check(x.grad, reduced(gradients, hvd.Average) * (1 if hvd.rank() == root else 0))


def test_gradient_of_a_sum_is_an_expanded_tensor():
    x = torch.ones(3, requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum).sum() + hvd.broadcast(x, 0).sum() + hvd.allgather(x).sum()).backward()
    check(x.grad, torch.full((3,), hvd.size() + (1.0 if hvd.rank() == 0 else 0.0) + 1.0))


def test_no_gradient_when_not_wanted():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert not hvd.synchronize(hvd.allreduce_async(x)).requires_grad
    p = torch.nn.Parameter(torch.ones(3))
    assert hvd.allreduce_(p, op=hvd.Sum) is p
    check(p.detach(), torch.full((3,), float(hvd.size())))


# ---- other devices


def test_tensors_that_are_the_negative_of_their_memory():
    """PyTorch makes such tensors of the imaginary parts of conjugates."""
    n = hvd.size()

    def lazy():
        tensor = torch._neg_view(torch.full((n, 3), float(hvd.rank() + 1)))
        assert tensor.is_neg()
        return tensor

    inputs = [torch.full((n, 3), -float(r + 1)) for r in range(n)]
    total, root = reduced(inputs, hvd.Sum), n - 1
    mine = lazy()
    check(hvd.allreduce(mine, op=hvd.Sum), total)
    check(hvd.grouped_allreduce([mine, inputs[hvd.rank()]], op=hvd.Sum)[0], total)
    check(hvd.allgather(mine), torch.cat(inputs))
    check(hvd.broadcast(mine, root), inputs[root])
    check(hvd.alltoall(mine), torch.stack([t[hvd.rank()] for t in inputs]))
    check(hvd.reducescatter(mine, op=hvd.Sum), total[hvd.rank()][None])
    check(mine, inputs[hvd.rank()])
    for result, expected in [
        (hvd.allreduce_(lazy(), op=hvd.Sum), total),
        (hvd.grouped_allreduce_([lazy()], op=hvd.Sum)[0], total),
        (hvd.broadcast_(lazy(), root), inputs[root]),
    ]:
        assert result.is_neg()
        check(result, expected)
    parameter = torch.zeros(n, 3, requires_grad=True)
    parameter.grad = lazy()
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    hvd.DistributedOptimizer(optimizer, [("negative", parameter)], op=hvd.Sum).step()
    check(parameter.detach(), -total)


@pytest.mark.usefixtures("by_ctypes")
def test_tensors_elsewhere_go_through_host_memory(monkeypatch):
    """Host memory stands in for that of a GPU here."""
    monkeypatch.setattr(_staging, "_usable", lambda tensor: False)
    inputs = of_all((4, 3), torch.float32)
    mine = inputs[hvd.rank()]
    before, total = mine.clone(), reduced(inputs, hvd.Sum)
    check(hvd.allreduce(mine, op=hvd.Sum), total)
    check(hvd.allgather(mine), torch.cat(inputs))
    root = hvd.size() - 1
    check(hvd.broadcast(mine, root), inputs[root])
    check(mine, before)
    handle = hvd.allreduce_async_(mine, op=hvd.Sum)
    assert mpi_ops._handle_map[handle].keeps[2].source.data_ptr() != mine.data_ptr()
    assert hvd.synchronize(handle) is mine
    check(mine, total)
    leaf = torch.nn.Parameter(before.clone())
    assert hvd.broadcast_(leaf, root) is leaf
    check(leaf.detach(), of_rank(root, (4, 3), torch.float32))


# ---- shapes of many dimensions


@pytest.mark.parametrize("ndim", [64, 65, 255])
def test_many_dimensions(ndim):
    n = hvd.size()
    shape = (2 * n,) + (1,) * (ndim - 2) + (3,)
    inputs = of_all(shape, torch.float32)
    mine, total = inputs[hvd.rank()], reduced([t.reshape(2 * n, 3) for t in inputs], hvd.Sum)
    rows = slice(2 * hvd.rank(), 2 * hvd.rank() + 2)
    flat = [t.reshape(2 * n, 3) for t in inputs]
    for result, expected in [
        (hvd.allreduce(mine, op=hvd.Sum), total),
        (hvd.broadcast(mine, 0), flat[0]),
        (hvd.allgather(mine), torch.cat(flat)),
        (hvd.grouped_allgather([mine])[0], torch.cat(flat)),
        (hvd.alltoall(mine), torch.cat([t[rows] for t in flat])),
        (hvd.reducescatter(mine, op=hvd.Sum), total[rows]),
    ]:
        assert result.shape == (len(expected), *shape[1:])
        check(result.reshape(-1, 3), expected)
    large = torch.full((10_000, *shape[1:]), float(hvd.rank()))
    assert hvd.allgather(large).shape == (10_000 * n, *shape[1:])


def test_too_many_dimensions():
    mine = torch.ones((hvd.size(),) + (1,) * 255)
    for call in (
        hvd.allreduce,
        hvd.allreduce_,
        hvd.allgather,
        hvd.alltoall,
        hvd.reducescatter,
        lambda t: hvd.broadcast(t, 0),
        lambda t: hvd.grouped_allgather([t]),
    ):
        with pytest.raises(ValueError, match="256 dimensions: 0 to 255 are possible"):
            call(mine)
    works()


# ---- many at once


def test_many_tensors_in_different_orders():
    count = 200
    shapes = [(i % 13, 1 + i % 7) for i in range(count)]
    dtypes = [DTYPES[i % len(DTYPES)] for i in range(count)]
    order = list(range(count))
    random.Random(hvd.rank()).shuffle(order)
    for _ in range(3):
        pending = {}
        for i in order:
            mine = of_rank(hvd.rank(), shapes[i], dtypes[i], seed=i)
            pending[i] = hvd.allreduce_async_(mine, name=f"many.{i}", op=hvd.Sum)
        random.Random(hvd.rank() + 7).shuffle(order)
        for i in order:
            check(hvd.synchronize(pending[i]), reduced(of_all(shapes[i], dtypes[i], seed=i), hvd.Sum))


def test_kinds_in_different_orders():
    count = 30
    order = list(range(count))
    random.Random(hvd.rank()).shuffle(order)
    pending = {}
    for i in order:
        mine = of_rank(hvd.rank(), (4, 3), torch.int32, seed=i)
        if i % 3 == 0:
            pending[i] = hvd.allreduce_async(mine, name=f"kinds.{i}", op=hvd.Sum)
        elif i % 3 == 1:
            pending[i] = hvd.allgather_async(mine, name=f"kinds.{i}")
        else:
            pending[i] = hvd.broadcast_async(mine, i % hvd.size(), name=f"kinds.{i}")
    for i, handle in pending.items():
        inputs = of_all((4, 3), torch.int32, seed=i)
        expected = [reduced(inputs, hvd.Sum), torch.cat(inputs), inputs[i % hvd.size()]][i % 3]
        check(hvd.synchronize(handle), expected)


def test_threads():
    threads, rounds = 4, 25
    failures = []

    def work(t):
        try:
            for i in range(rounds):
                mine = of_rank(hvd.rank(), (11,), torch.int64, seed=i)
                name = f"threads.{t}.{i}"
                result = (
                    hvd.allreduce(mine, name=name, op=hvd.Sum)
                    if i % 2
                    else hvd.synchronize(hvd.allreduce_async(mine, name=name, op=hvd.Sum))
                )
                check(result, reduced(of_all((11,), torch.int64, seed=i), hvd.Sum))
        except BaseException as e:  # noqa: B036
            failures.append(e)

    workers = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []


def test_two_threads_wait_for_one_handle():
    mine = torch.ones(3)
    handle = hvd.allreduce_async(mine, name="shared", op=hvd.Sum)
    results = []
    threads = [threading.Thread(target=lambda: results.append(hvd.synchronize(handle))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r is None for r in results) == [False, True]


def test_tensors_live_until_synchronize():
    handles = [hvd.allreduce_async(torch.full((50_000,), float(i)), name=f"alive.{i}", op=hvd.Sum) for i in range(10)]
    gc.collect()
    others = [torch.full((50_000,), -1.0) for _ in range(20)]  # would take the memory that was freed
    for i, handle in enumerate(handles):
        check(hvd.synchronize(handle), torch.full((50_000,), float(i * hvd.size())))
    del others


# ---- handles


def test_handles():
    mine = torch.ones(3)
    handle = hvd.allreduce_async(mine)
    assert type(handle) is int and handle > 0
    following = hvd.allgather_async(mine)
    assert following == handle + 1
    assert hvd.synchronize(handle) is not None
    assert hvd.poll(following) in (True, False)
    while not hvd.poll(following):
        pass
    assert hvd.poll(following) is True
    hvd.synchronize(following)
    assert hvd.synchronize(handle) is None
    assert hvd.synchronize(10**9) is None
    with pytest.raises(ValueError):
        hvd.poll(handle)
    assert mpi_ops._handle_map == {}


@pytest.mark.parametrize("submit", [hvd.allreduce_async, lambda mine: hvd.grouped_allreduce_async([mine, mine])])
def test_polling_tells_the_engine(submit, monkeypatch):
    """Where cores are scarce, the engine hurries only for callers that it knows to wait."""
    lib, asked = _lib.load(), []

    class Asked:
        def gorovod_wait(self, handle, limit_ms):
            asked.append(limit_ms)
            return lib.gorovod_wait(handle, limit_ms)

    if hvd.rank() == 0:
        time.sleep(0.2)  # so that the others find it in progress
    handle = submit(torch.ones(3))
    with monkeypatch.context() as patch:
        patch.setattr(_lib, "load", Asked)
        assert hvd.poll(handle) or asked == [0]
    hvd.synchronize(handle)


# ---- errors, after each of which the engine goes on


@several()
def test_mismatched_shapes():
    mismatch(
        "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape",
        lambda odd: hvd.allreduce(torch.ones(4 if odd else 3), name="m.shape"),
    )
    mismatch(
        "Mismatched ALLREDUCE tensor shapes",
        lambda odd: hvd.allreduce(torch.ones((2, 6) if odd else (6, 2)), name="m.transposed"),
    )
    mismatch(
        "Mismatched BROADCAST tensor shapes",
        lambda odd: hvd.broadcast(torch.ones(4 if odd else 3), 0, name="m.bshape"),
    )
    mismatch(
        "One rank sent a tensor with dimension 1 equal to .*, but another rank sent a tensor with dimension 1 equal to",
        lambda odd: hvd.allgather(torch.ones(2, 4 if odd else 3), name="m.gdim"),
    )
    mismatch(
        "One rank sent a tensor of rank .*, but another rank sent a tensor of rank",
        lambda odd: hvd.allgather(torch.ones((2, 3, 1) if odd else (2, 3)), name="m.grank"),
    )


@several()
def test_mismatched_dtypes():
    dtype = {True: torch.int32, False: torch.float32}
    mismatch(
        "Mismatched data types: One rank had type .*, but another rank had type",
        lambda odd: hvd.allreduce(torch.ones(3, dtype=dtype[odd]), name="m.dtype"),
    )


@several()
def test_mismatched_kinds():
    def submit(odd):
        # The front end puts the kind into the name, so only another user of the engine can get this.
        mine = torch.ones(3)
        kind, output = (_lib.ALLGATHER, 0) if odd else (_lib.BROADCAST, mine.data_ptr())
        cell = _cells.describe(
            b"m.kind", mine.shape, 0, kind, _lib.FLOAT32, 0, 0, 0, 1.0, 1.0, mine.data_ptr(), output
        )  # fmt: skip
        _cells.enqueue(cell)
        status = _lib.wait(cell.handle)
        assert status == cell.words[cell.word] == _lib.PRECONDITION_ERROR
        try:
            raise _lib.error(status)
        finally:
            _lib.release(cell.handle)
            cell.free()

    mismatch("Mismatched operations", submit)


@several()
def test_mismatched_reduction():
    mismatch(
        "Mismatched reduction operation",
        lambda odd: hvd.allreduce(torch.ones(3), name="m.op", op=hvd.Max if odd else hvd.Min),
    )
    mismatch(
        "Mismatched prescale and/or postscale factors",
        lambda odd: hvd.allreduce(torch.ones(3), name="m.scale", op=hvd.Sum, prescale_factor=2.0 if odd else 1.0),
    )


@several()
def test_mismatched_roots():
    mismatch(
        "Mismatched BROADCAST root ranks: One rank specified root rank",
        lambda odd: hvd.broadcast(torch.ones(3), 1 if odd else 0, name="m.root"),
    )


@several()
def test_a_bad_tensor_among_good_ones():
    handles = [hvd.allreduce_async(torch.ones(5), name=f"good.{i}", op=hvd.Sum) for i in range(20)]
    bad = hvd.allreduce_async(torch.ones(3 + hvd.rank()), name="bad")
    handles += [hvd.allreduce_async(torch.ones(5), name=f"good.{i}", op=hvd.Sum) for i in range(20, 40)]
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
        hvd.synchronize(bad)
    assert hvd.synchronize(bad) is None
    for handle in handles:
        check(hvd.synchronize(handle), torch.full((5,), float(hvd.size())))


def test_changing_shape_under_one_name():
    for n in (3, 4, 3, 5):
        check(hvd.allreduce(torch.ones(n), name="changing", op=hvd.Sum), torch.full((n,), float(hvd.size())))


@several()
def test_duplicate_name():
    if hvd.rank() == 0:  # nobody else has submitted it, so it is pending
        handle = hvd.allreduce_async(torch.ones(3), name="duplicate", op=hvd.Sum)
        for _ in range(2):
            with pytest.raises(ValueError, match="same name as another tensor that is currently being processed"):
                hvd.allreduce_async(torch.ones(3), name="duplicate", op=hvd.Sum)
    else:
        for _ in range(2):
            next(_submission._handles)  # rank 0 has used two more numbers for unnamed operations
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(torch.ones(3), name="duplicate", op=hvd.Sum)
    check(hvd.synchronize(handle), torch.full((3,), float(hvd.size())))
    works()


def test_scalar_allgather():
    with pytest.raises(hvd.HorovodInternalError, match="Process-set rank zero tried to ALLGATHER a rank-zero tensor"):
        hvd.allgather(torch.tensor(1.0), name="scalar")
    works()


def test_bad_tensors():
    calls = [
        lambda t: hvd.allreduce(t),
        lambda t: hvd.allreduce_(t),
        lambda t: hvd.allgather(t),
        lambda t: hvd.broadcast(t, 0),
        lambda t: hvd.broadcast_(t, 0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"Tensor is required to be contiguous\."):
            call(torch.ones(4, 3).t())
        with pytest.raises(ValueError, match=r"Tensor type torch\.ComplexFloatTensor is not supported\."):
            call(torch.ones(3, dtype=torch.complex64))
        with pytest.raises(ValueError, match="layout torch.sparse_coo is not supported"):
            call(torch.ones(3).to_sparse())
        with pytest.raises(TypeError):
            call([1.0, 2.0])
    works()


def numbered(process_set_id):
    process_set = hvd.ProcessSet([0])
    process_set.process_set_id = process_set_id
    return process_set


def test_bad_arguments():
    mine = torch.ones(3)
    with pytest.raises(NotImplementedError, match="Adasum does not support non-global process sets yet"):
        hvd.allreduce(mine, op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    with pytest.raises(ValueError, match="unknown reduce operation"):
        hvd.allreduce(mine, op=77)
    # These were given a number before the engine refused them, on every rank alike.
    for root in (-1, hvd.size()):
        with pytest.raises(ValueError, match="invalid root rank"):
            hvd.broadcast(mine, root)
    for huge in (2**31, 2**32, 2**40, -(2**31) - 1, 10**30):  # the lower bits of some are a valid number
        for call in (
            lambda n: hvd.broadcast(mine, n),
            lambda n: hvd.broadcast_(mine.clone(), n),
            lambda n: hvd.broadcast_object(mine, n),
            lambda n: hvd.alltoall(torch.ones(hvd.size()), splits=[n] * hvd.size()),
            lambda n: hvd.ProcessSet([n]),
            lambda n: hvd.allreduce(mine, process_set=numbered(n)),
            lambda n: hvd.reducescatter(mine, process_set=numbered(n)),
            lambda n: hvd.barrier(numbered(n)),
            lambda n: numbered(n).size(),
            lambda n: numbered(n).rank(),
            lambda n: hvd.remove_process_set(numbered(n)),
        ):
            with pytest.raises(ValueError, match="must fit into 32 bits"):
                call(huge)
    for splits in ([1.0] * hvd.size(), [[1] * hvd.size()], 1):
        with pytest.raises(ValueError, match="alltoall expects splits to be a sequence of integers"):
            hvd.alltoall(torch.ones(hvd.size()), splits=splits)
    with pytest.raises(ValueError, match="NUL"):
        hvd.allreduce(mine, name="a\0b")
    for call in (hvd.allreduce, hvd.allgather, lambda tensor, name: hvd.grouped_allreduce([tensor], name=name)):
        with pytest.raises(ValueError, match="half of a surrogate pair") as told:
            call(mine, name="a\udc80b")
        assert not isinstance(told.value, UnicodeError)
    unregistered = hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="not initialized"):
        hvd.allreduce(mine, process_set=unregistered)
    with pytest.raises(ValueError, match="not initialized"):
        hvd.barrier(unregistered)
    unregistered.process_set_id = 12345
    with pytest.raises(ValueError):
        hvd.allreduce(mine, process_set=unregistered)
    assert mpi_ops._handle_map == {}
    works()


def test_names_may_be_any_text():
    for name in ("", "größe/☃ %s %d", "x" * 3000):
        check(hvd.allreduce(torch.ones(2), name=name, op=hvd.Sum), torch.full((2,), float(hvd.size())))
