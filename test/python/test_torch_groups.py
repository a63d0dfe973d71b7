"""Alltoall, reducescatter, sparse allreduce, and the calls on groups of tensors, against their definition."""

import random

import pytest
import torch
from definitions import (
    DTYPES,
    FLOATS,
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
from horovod.common import _cells, _lib, _operations
from horovod.torch import _staging, _submission, mpi_ops

pytestmark = pytest.mark.usefixtures("job")


def uneven_splits(sender, size, seed=0):
    """How many rows ``sender`` sends to each rank, to some of them none."""
    return [(sender * 3 + receiver * 2 + seed) % 4 for receiver in range(size)]


def exchanged(inputs, splits):
    """The definition of alltoall: the rows that this rank gets, and how many from each rank."""
    me = hvd.rank()
    parts = [t.split([*s, len(t) - sum(s)])[me] for t, s in zip(inputs, splits)]
    return torch.cat(parts), torch.tensor([s[me] for s in splits], dtype=torch.int32)


def scattered(total, rank=None, size=None):
    """The rows of ``total`` that a reducescatter gives ``rank``, by default this one."""
    rank, size = hvd.rank() if rank is None else rank, size or hvd.size()
    rows = [len(total) // size + (1 if r < len(total) % size else 0) for r in range(size)]
    return total.split(rows)[rank]


# ---- alltoall


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alltoall(dtype):
    n = hvd.size()
    for rest in [(), (3,), (2, 3), (0,)]:
        for rows in (0, 1, 3):
            inputs = of_all((rows * n, *rest), dtype)
            expected, received = exchanged(inputs, [[rows] * n] * n)
            mine = inputs[hvd.rank()]
            result = hvd.alltoall(mine)
            check(result, expected)
            result, splits = hvd.synchronize(hvd.alltoall_async(mine))  # synchronize always returns both
            check(result, expected)
            check(splits, received)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alltoall_with_splits(dtype):
    n = hvd.size()
    for seed, rest, kept in [(0, (), 0), (1, (3,), 0), (2, (2, 2), 3)]:  # rows that are kept stay at the end
        splits = [uneven_splits(r, n, seed) for r in range(n)]
        inputs = [of_rank(r, (sum(splits[r]) + kept, *rest), dtype) for r in range(n)]
        expected, received = exchanged(inputs, splits)
        mine = splits[hvd.rank()]
        for form in (mine, tuple(mine), torch.tensor(mine, dtype=torch.int32)):
            result, rows = hvd.alltoall(inputs[hvd.rank()], splits=form)
            check(result, expected)
            check(rows, received)


def test_alltoall_of_nothing():
    n = hvd.size()
    result, received = hvd.alltoall(torch.empty(0, 3), splits=[0] * n)
    check(result, torch.empty(0, 3))
    assert received.tolist() == [0] * n


def test_alltoall_to_one_rank():
    n, last = hvd.size(), hvd.size() - 1
    splits = [0] * last + [2]
    result, received = hvd.alltoall(torch.full((2, 3), float(hvd.rank())), splits=splits)
    if hvd.rank() == last:
        check(result, torch.arange(n, dtype=torch.float32).repeat_interleave(2)[:, None].expand(-1, 3))
        assert received.tolist() == [2] * n
    else:
        check(result, torch.empty(0, 3))
        assert received.tolist() == [0] * n


def test_alltoall_large():
    n, rows = hvd.size(), 100_000
    mine = torch.arange(n).repeat_interleave(rows) + 10 * hvd.rank()
    result = hvd.alltoall(mine)
    check(result, (10 * torch.arange(n)).repeat_interleave(rows) + hvd.rank())


def test_alltoall_errors():
    n, mine = hvd.size(), torch.ones(2 * hvd.size(), 2)
    for splits, match in [
        (torch.ones(n, 1, dtype=torch.int32), "1D splits"),
        (torch.ones(n, dtype=torch.int64), "32-bit"),
        ([1.5] * n + [1], "splits"),
        ([1] * (n + 1), "splits"),
        ([2] * (n - 1) + [3], "sum of the splits|splits.*greater"),
        ([-1] + [1] * (n - 1), "negative"),
    ]:
        for _ in range(2):
            with pytest.raises(ValueError, match=match):
                hvd.alltoall(mine, splits=splits)
    if n > 1:
        with pytest.raises(ValueError, match="divisible"):
            hvd.alltoall(torch.ones(n + 1))
    with pytest.raises(hvd.HorovodInternalError, match="Process-set rank zero tried to ALLTOALL a rank-zero tensor"):
        hvd.alltoall(torch.tensor(1.0))
    assert mpi_ops._handle_map == {}
    works()


@several()
def test_alltoall_mismatches():
    n = hvd.size()
    mismatch(
        "Mismatched ALLTOALL tensor shapes: One rank sent a tensor with dimension 1 equal to",
        lambda odd: hvd.alltoall(torch.ones(n, 4 if odd else 3), name="m.adim"),
    )
    mismatch(
        "One rank sent a tensor of rank .*, but another rank sent a tensor of rank",
        lambda odd: hvd.alltoall(torch.ones((n, 3, 1) if odd else (n, 3)), name="m.arank"),
    )
    mismatch(
        "Mismatched data types",
        lambda odd: hvd.alltoall(torch.ones(n, dtype=torch.int32 if odd else torch.float32), name="m.atype"),
    )


def test_gradient_of_alltoall():
    n = hvd.size()
    splits = [uneven_splits(r, n) for r in range(n)]
    for kept in (0, 2):
        x = of_rank(hvd.rank(), (sum(splits[hvd.rank()]) + kept, 2), torch.float64).requires_grad_()
        y, received = hvd.alltoall(x, splits=splits[hvd.rank()])
        assert y.requires_grad and not received.requires_grad
        # Each row's gradient is the rank that has the row now.
        y.backward(torch.full_like(y, float(hvd.rank())))
        owners = torch.arange(n, dtype=torch.float64).repeat_interleave(torch.tensor(splits[hvd.rank()]))
        check(x.grad, torch.cat((owners, torch.zeros(kept, dtype=torch.float64)))[:, None].expand(-1, 2))
    x = torch.ones(2 * n, requires_grad=True)
    hvd.alltoall(x).sum().backward()
    check(x.grad, torch.ones(2 * n))


# ---- reducescatter


@pytest.mark.parametrize("op", ["Sum", "Average"])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.bool], ids=str)
def test_reducescatter(dtype, op):
    op, n = OPS[op], hvd.size()
    for rows in (0, 1, n, 2 * n + 1, 3 * n - 1):
        for rest in [(), (3,), (2, 3), (0,)]:
            inputs = of_all((rows, *rest), dtype, low=-2, high=3)
            expected = scattered(reduced(inputs, op))
            mine = inputs[hvd.rank()]
            before = mine.clone()
            check(hvd.reducescatter(mine, op=op), expected)
            check(hvd.synchronize(hvd.reducescatter_async(mine, op=op)), expected)
            check(mine, before)


def test_reducescatter_averages_by_default():
    n = hvd.size()
    check(hvd.reducescatter(torch.full((n, 2), 2.0 * hvd.rank())), torch.full((1, 2), n - 1.0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reducescatter_scaling(dtype):
    inputs = of_all((2 * hvd.size() + 1, 3), dtype)
    expected = scattered((sum(t.to(torch.float64) * 0.5 for t in inputs) * 3).to(dtype))
    mine = inputs[hvd.rank()]
    check(hvd.reducescatter(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), expected)


def test_reducescatter_compression():
    inputs = of_all((5, 3), torch.float32)
    result = hvd.reducescatter(inputs[hvd.rank()], op=hvd.Sum, compression=hvd.Compression.fp16)
    check(result, scattered(reduced(inputs, hvd.Sum)))


def test_reducescatter_large():
    n, rows = hvd.size(), 300_001
    mine = torch.arange(rows, dtype=torch.int64) + hvd.rank()
    check(hvd.reducescatter(mine, op=hvd.Sum), scattered(torch.arange(rows) * n + sum(range(n))))


def test_reducescatter_errors():
    for _ in range(2):
        for grad in (False, True):
            with pytest.raises(ValueError, match="scalar"):
                hvd.reducescatter(torch.tensor(1.0, requires_grad=grad))
        with pytest.raises(ValueError, match="scalar"):
            hvd.grouped_reducescatter([torch.ones(2), torch.tensor(1.0)])
        for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
            with pytest.raises(hvd.HorovodInternalError, match="currently only supports AVERAGE and SUM"):
                hvd.reducescatter(torch.ones(3), op=op)
    assert mpi_ops._handle_map == {}
    works()


@several()
def test_reducescatter_mismatches():
    mismatch(
        "Mismatched REDUCESCATTER tensor shapes: One rank sent a tensor of shape",
        lambda odd: hvd.reducescatter(torch.ones(4 if odd else 3), name="m.rshape"),
    )
    mismatch(
        "Mismatched prescale and/or postscale factors",
        lambda odd: hvd.reducescatter(torch.ones(3), name="m.rscale", prescale_factor=2.0 if odd else 1.0),
    )


def test_gradient_of_reducescatter():
    n = hvd.size()
    gradient = of_rank(0, (2 * n + 1, 2), torch.float64)
    for op, pre, post, factor in [(hvd.Sum, 1.0, 1.0, n), (hvd.Average, 1.0, 1.0, 1), (hvd.Sum, 2.0, 3.0, 6 * n)]:
        x = of_rank(hvd.rank(), (2 * n + 1, 2), torch.float64).requires_grad_()
        y = hvd.reducescatter(x, op=op, prescale_factor=pre, postscale_factor=post)
        mine = scattered(gradient).clone()
        y.backward(mine)
        check(x.grad, factor * gradient)
        check(mine, scattered(gradient))  # the caller's gradient is unchanged


# ---- groups


def shapes_and_dtypes(count):
    return [(SHAPES[i % len(SHAPES)], FLOATS[i % len(FLOATS)]) for i in range(count)]


@pytest.mark.parametrize("name", [None, "named"])
@pytest.mark.parametrize("op", OPS)
def test_grouped_allreduce(op, name):
    op = OPS[op]
    inputs = [of_all(shape, dtype, low=-2, high=3, seed=i) for i, (shape, dtype) in enumerate(shapes_and_dtypes(9))]
    expected = [reduced(ranks, op) for ranks in inputs]
    mine = [ranks[hvd.rank()] for ranks in inputs]
    before = [t.clone() for t in mine]
    for result in (
        hvd.grouped_allreduce(mine, op=op, name=name),
        hvd.grouped_allreduce(tuple(mine), op=op, name=name),
        hvd.synchronize(hvd.grouped_allreduce_async(mine, op=op, name=name)),
    ):
        assert type(result) is list
        for a, e in zip(result, expected):
            check(a, e)
    for a, e in zip(mine, before):
        check(a, e)
    for call in (hvd.grouped_allreduce_, lambda *a, **k: hvd.synchronize(hvd.grouped_allreduce_async_(*a, **k))):
        result = call(mine, op=op, name=name)
        for a, e, own, old in zip(result, expected, mine, before):
            assert a is own
            check(a, e)
            own.copy_(old)


def test_grouped_allreduce_options():
    inputs = [of_all((5,), torch.float32, seed=i) for i in range(3)]
    mine = [ranks[hvd.rank()] for ranks in inputs]
    for a, ranks in zip(hvd.grouped_allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), inputs):
        check(a, 2 * reduced(ranks, hvd.Sum))
    for a, ranks in zip(hvd.grouped_allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16), inputs):
        check(a, reduced(ranks, hvd.Sum))
    with pytest.deprecated_call():
        for a, ranks in zip(hvd.grouped_allreduce(mine, average=False), inputs):
            check(a, reduced(ranks, hvd.Sum))
    with pytest.raises(ValueError, match="op parameter supersedes average"):
        hvd.grouped_allreduce(mine, average=True, op=hvd.Sum)


def test_grouped_allgather():
    inputs = [[of_rank(r, (r + i, 2), torch.int32, seed=i) for r in range(hvd.size())] for i in range(4)]
    mine = [ranks[hvd.rank()] for ranks in inputs]
    for result in (hvd.grouped_allgather(mine, name="g"), hvd.synchronize(hvd.grouped_allgather_async(mine))):
        assert type(result) is list
        for a, ranks in zip(result, inputs):
            check(a, torch.cat(ranks))


def test_grouped_reducescatter():
    inputs = [of_all((3 * i + 1, 2), torch.float32, seed=i) for i in range(4)]
    mine = [ranks[hvd.rank()] for ranks in inputs]
    for op in (hvd.Sum, hvd.Average):
        for result in (
            hvd.grouped_reducescatter(mine, op=op, name="g"),
            hvd.grouped_reducescatter(mine, op=op, compression=hvd.Compression.fp16),
            hvd.synchronize(hvd.grouped_reducescatter_async(mine, op=op)),
        ):
            assert type(result) is list
            for a, ranks in zip(result, inputs):
                torch.testing.assert_close(a, scattered(reduced(ranks, op)), atol=2e-3, rtol=2e-3)


def test_groups_of_one_and_of_none():
    assert hvd.grouped_allreduce([]) == []
    assert hvd.grouped_allgather([]) == []
    assert hvd.grouped_reducescatter([]) == []
    (one,) = hvd.grouped_allreduce([torch.ones(2)], op=hvd.Sum)
    check(one, torch.full((2,), float(hvd.size())))


def test_large_groups():
    """More bytes than one fusion buffer can have, and many tensors."""
    mine = [torch.full((2_000_000,), float(i + hvd.rank())) for i in range(10)]
    for i, result in enumerate(hvd.grouped_allreduce_(mine, op=hvd.Sum)):
        assert bool((result == sum(range(hvd.size())) + i * hvd.size()).all())
    for i, result in enumerate(hvd.grouped_allreduce([torch.full((3,), float(i)) for i in range(500)])):
        check(result, torch.full((3,), float(i)))


def test_groups_in_different_orders():
    """Ranks may submit groups, and ungrouped tensors among them, in any order; and again, when they are cached."""
    count = 12
    for turn in range(4):
        order = list(range(count))
        random.Random(turn * 100 + hvd.rank()).shuffle(order)
        pending = {}
        for i in order:
            tensors = [of_rank(hvd.rank(), (3 + j, 2), torch.float32, seed=10 * i + j) for j in range(1 + i % 4)]
            if i % 4 == 0:
                pending[i] = hvd.grouped_allreduce_async_(tensors, name=f"order.{i}", op=hvd.Sum)
            elif i % 4 == 1:
                pending[i] = hvd.grouped_allgather_async(tensors, name=f"order.{i}")
            elif i % 4 == 2:
                pending[i] = hvd.grouped_reducescatter_async(tensors, name=f"order.{i}", op=hvd.Sum)
            else:
                pending[i] = hvd.allreduce_async(tensors[0], name=f"order.{i}", op=hvd.Sum)
        random.Random(turn).shuffle(order)
        for i in order:
            results = hvd.synchronize(pending[i])
            for j, result in enumerate(results if i % 4 != 3 else [results]):
                inputs = of_all((3 + j, 2), torch.float32, seed=10 * i + j)
                total = reduced(inputs, hvd.Sum)
                check(result, {1: torch.cat(inputs), 2: scattered(total)}.get(i % 4, total))


@several()
def test_groups_start_when_they_are_complete_everywhere():
    if hvd.rank() == 0:
        handle = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], name="complete", op=hvd.Sum)
        for _ in range(100):
            assert not hvd.poll(handle)
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(3)], name="complete", op=hvd.Sum)
    a, b = hvd.synchronize(handle)
    assert (a.tolist(), b.tolist()) == ([hvd.size()] * 2, [hvd.size()] * 3)


@pytest.mark.usefixtures("by_ctypes")
def test_a_group_is_one_crossing(monkeypatch):
    crossings = []
    enqueue_group = _cells.enqueue_group
    monkeypatch.setattr(_operations.Operation, "submit", lambda *_: pytest.fail("one by one"))
    monkeypatch.setattr(
        _cells,
        "enqueue_group",
        lambda name, cells: crossings.append((name, len(cells))) or enqueue_group(name, cells),
    )
    hvd.grouped_allreduce([torch.ones(2)] * 5, name="crossing")
    assert crossings == [(b"grouped_allreduce.crossing", 5)]


@several()
@pytest.mark.parametrize("kind", ["allreduce", "allgather", "reducescatter"])
@pytest.mark.parametrize("name", ["b", None])
def test_names_of_groups(kind, name):
    """Each tensor's name is taken as long as another operation of that name is under way."""
    if name is None:
        hvd.join()  # the engine counts from 1 again
    wire_name = f"grouped_{kind}.{name or 'noname.1'}_2of2"
    mine = torch.ones(2)

    def take_the_name():
        address = mine.data_ptr()
        cell = _cells.describe(
            wire_name.encode(), mine.shape, 0, _lib.ALLREDUCE, _lib.FLOAT32, hvd.Sum, 0, 0, 1.0, 1.0, address, address
        )  # fmt: skip
        _cells.enqueue(cell)
        return cell

    if hvd.rank() == 0:
        cell = take_the_name()
        with pytest.raises(ValueError, match=f'"{wire_name}".* same name'):
            getattr(hvd, f"grouped_{kind}_async")([torch.ones(2), torch.ones(3)], name=name)
    hvd.barrier()
    if hvd.rank() != 0:
        cell = take_the_name()
    assert _lib.wait(cell.handle) == _lib.OK
    assert mine.tolist() == [hvd.size()] * 2
    _lib.release(cell.handle)
    works()


def test_group_errors():
    mine = torch.ones(3)
    with pytest.raises(ValueError, match="contiguous"):
        hvd.grouped_allreduce([mine, torch.ones(4, 3).t()])
    with pytest.raises(ValueError, match="not supported"):
        hvd.grouped_allgather([mine, torch.ones(3, dtype=torch.complex64)])
    with pytest.raises(TypeError):
        hvd.grouped_allreduce([mine, 3.0])
    with pytest.raises(ValueError, match="unknown reduce operation"):
        hvd.grouped_allreduce([mine], op=77)
    with pytest.raises(NotImplementedError, match="Adasum"):
        hvd.grouped_allreduce([mine], op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    assert mpi_ops._handle_map == {}
    works()


@several()
def test_duplicate_group():
    """A group that is refused submits none of its tensors."""
    mine = [torch.ones(3), torch.ones(4)]
    if hvd.rank() == 0:
        handle = hvd.grouped_allreduce_async(mine, name="duplicate", op=hvd.Sum)
        with pytest.raises(ValueError, match="same name as another tensor that is currently being processed"):
            hvd.grouped_allreduce_async(mine, name="duplicate", op=hvd.Sum)
    else:
        next(_submission._handles)
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.grouped_allreduce_async(mine, name="duplicate", op=hvd.Sum)
    assert [t.tolist() for t in hvd.synchronize(handle)] == [[hvd.size()] * 3, [hvd.size()] * 4]
    works()


@several()
def test_a_mismatch_in_a_group():
    def submit(odd):
        tensors = [torch.ones(2), torch.ones(4 if odd else 3), torch.ones(5)]
        handle = hvd.grouped_allreduce_async_(tensors, name="m.group", op=hvd.Sum)
        try:
            hvd.synchronize(handle)
        finally:
            assert hvd.synchronize(handle) is None

    mismatch("Mismatched ALLREDUCE tensor shapes", submit)


def test_gradients_of_groups():
    n = hvd.size()
    gradients = [of_all((2 * n, 2), torch.float64, seed=i) for i in range(3)]

    def leaves():
        return [of_rank(hvd.rank(), (2 * n, 2), torch.float64, seed=9 + i).requires_grad_() for i in range(3)]

    for op in (hvd.Sum, hvd.Average):
        xs = leaves()
        ys = hvd.grouped_allreduce(xs, op=op)
        torch.autograd.backward(ys, [g[hvd.rank()] for g in gradients])
        for x, g in zip(xs, gradients):
            check(x.grad, reduced(g, op))

        xs = leaves()
        ys = hvd.grouped_reducescatter(xs, op=op)
        torch.autograd.backward(ys, [scattered(g[0]) for g in gradients])
        for x, g in zip(xs, gradients):
            check(x.grad, g[0] * (n if op == hvd.Sum else 1))

    rows = [[(r + i) % 3 for r in range(n)] for i in range(3)]
    xs = [torch.ones(rows[i][hvd.rank()], 2, dtype=torch.float64, requires_grad=True) for i in range(3)]
    ys = hvd.grouped_allgather(xs)
    gradients = [[of_rank(r, (sum(rows[i]), 2), torch.float64, seed=i) for r in range(n)] for i in range(3)]
    torch.autograd.backward(ys, [g[hvd.rank()] for g in gradients])
    for i, x in enumerate(xs):
        check(x.grad, reduced(gradients[i], hvd.Average).split(rows[i])[hvd.rank()])


def test_gradient_of_a_part_of_a_group():
    xs = [torch.ones(2, requires_grad=True), torch.ones(3)]
    hvd.grouped_allreduce(xs, op=hvd.Sum)[0].sum().backward()
    check(xs[0].grad, torch.full((2,), float(hvd.size())))


@pytest.mark.usefixtures("by_ctypes")
def test_groups_elsewhere_go_through_host_memory(monkeypatch):
    """Host memory stands in for that of a GPU here."""
    monkeypatch.setattr(_staging, "_usable", lambda tensor: False)
    n = hvd.size()
    mine = [torch.ones(n, 2), torch.full((n,), 2.0)]
    for result in (hvd.grouped_allreduce(mine, op=hvd.Sum), hvd.grouped_allreduce_(mine, op=hvd.Sum)):
        check(result[0], torch.full((n, 2), float(n)))
        check(result[1], torch.full((n,), 2.0 * n))
    assert result[0] is mine[0]
    check(hvd.reducescatter(torch.ones(n, 2), op=hvd.Sum), torch.full((1, 2), float(n)))
    check(hvd.alltoall(torch.full((n,), float(hvd.rank()))), torch.arange(n, dtype=torch.float32))


# ---- sparse allreduce


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_sparse_allreduce(op):
    n = hvd.size()

    def of(rank):
        indices = torch.tensor([[rank, 0, rank + 1], [0, 1, 0]])
        return torch.sparse_coo_tensor(indices, torch.tensor([[1.0, 2.0]] * 3) + rank, (n + 1, 2, 2))

    expected = sum(of(r).to_dense() for r in range(n)) / (n if op == "Average" else 1)
    for name in ("sparse", None):
        wait = hvd.sparse_allreduce_async(of(hvd.rank()), name, OPS[op])
        assert callable(wait)
        result = wait()
        assert result.is_sparse and result.size() == (n + 1, 2, 2)
        torch.testing.assert_close(result.to_dense(), expected)


@several()
def test_sparse_allreduce_of_different_tensors():
    def submit(odd):
        mine = torch.ones(3, 2).to_sparse(1 if odd else 2)
        hvd.sparse_allreduce_async(mine, "m.sparse", hvd.Sum)()

    mismatch("One rank sent a tensor", submit)
    assert mpi_ops._handle_map == {}  # neither indices nor values are left behind


def test_sparse_allreduce_of_nothing():
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 3), (5, 3))
    result = hvd.sparse_allreduce_async(empty, "nothing", hvd.Sum)()
    assert result.is_sparse
    check(result.to_dense(), torch.zeros(5, 3))


def test_sparse_allreduce_with_nothing_on_some_ranks():
    n = hvd.size()
    mine = torch.zeros(n, 2, dtype=torch.bfloat16)
    if hvd.rank() % 2 == 0:
        mine[hvd.rank()] = 3.0
    expected = torch.tensor([[0.0 if r % 2 else 3.0] * 2 for r in range(n)], dtype=torch.bfloat16)
    check(hvd.sparse_allreduce_async(mine.to_sparse(1), "some", hvd.Max)().to_dense(), expected)  # as a sum
    check(hvd.sparse_allreduce_async(mine.to_sparse(1), "some", hvd.Average)().to_dense(), expected / n)


def test_names_of_sparse_allreduce():
    wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "pair", hvd.Sum)
    names = {operation.name for operation in mpi_ops._handle_map.values()}
    assert names == {b"allgather.pair.indices", b"allgather.pair.values"}
    check(wait().to_dense(), torch.eye(2) * hvd.size())
