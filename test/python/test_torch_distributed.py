"""The backend of torch.distributed: every collective by its definition and against Gloo, subgroups, and errors."""

import contextlib
import datetime
import functools
import itertools
import math
import operator
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from definitions import DTYPES, FLOATS, INTEGERS, check, hvd_size, of_rank, several

import horovod.torch as hvd
from horovod.torch.distributed import (
    CompressedState,
    HorovodInternalError,
    _memory,
    _work,
    allreduce_hook,
    compressed_hook,
)

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
SHAPES = [(), (1,), (17,), (3, 5), (2, 0, 3)]
ReduceOp = dist.ReduceOp
REDUCTIONS = {
    "SUM": operator.add,
    "PRODUCT": operator.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


@pytest.fixture(scope="module", autouse=True)
def groups():
    torch.set_num_threads(1)
    dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
    yield
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def gloo(groups):
    return dist.new_group(backend="gloo")


def size():
    return dist.get_world_size()


def rank():
    return dist.get_rank()


def of_all(*args, **kwargs):
    return [of_rank(r, *args, **kwargs) for r in range(size())]


def mine(*args, **kwargs):
    return of_rank(rank(), *args, **kwargs)


def reduced(tensors, op):
    """The definition of a reduction, which is exact for these numbers."""
    wide = torch.float64 if tensors[0].is_floating_point() else tensors[0].dtype
    return functools.reduce(REDUCTIONS[op], [t.to(wide) for t in tensors]).to(tensors[0].dtype)


def test_who_we_are():
    assert dist.get_backend() == "gorovod"
    assert (rank(), size()) == (hvd.rank(), hvd.size())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX"])
def test_allreduce(op, dtype, shape):
    t = mine(shape, dtype, low=1, high=4)
    dist.all_reduce(t, getattr(ReduceOp, op))
    check(t, reduced(of_all(shape, dtype, low=1, high=4), op))


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
@pytest.mark.parametrize("op", ["BAND", "BOR", "BXOR"])
def test_bits(op, dtype):
    expected = reduced(of_all((5, 3), dtype), op)
    t = mine((5, 3), dtype)
    dist.all_reduce(t, getattr(ReduceOp, op))
    assert torch.equal(t, expected)
    t = mine((5, 3), dtype).t()  # goes through a copy
    dist.reduce(t, size() - 1, getattr(ReduceOp, op))
    assert torch.equal(t.t(), expected if rank() == size() - 1 else mine((5, 3), dtype))
    t = torch.zeros((5, 3), dtype=dtype)
    dist.reduce_scatter(t, [mine((5, 3), dtype)] * size(), getattr(ReduceOp, op))
    assert torch.equal(t, expected)


def ranks_disagree(odd, common, why):
    """The last rank calls ``odd``, the others ``common``. All get an error that matches ``why``."""
    with pytest.raises(HorovodInternalError, match=why):
        (odd if rank() == size() - 1 else common)()


@several()
def test_disagreement_about_bits():
    n, last = size(), size() - 1
    x = torch.arange(n, dtype=torch.int32)

    def scatter(op):
        return lambda: dist.reduce_scatter(torch.zeros(1, dtype=torch.int32), list(x.split(1)), op)

    def allreduce(op):
        return lambda: dist.all_reduce(x, op)

    def reduce(root):
        return lambda: dist.reduce(x, root, ReduceOp.BXOR)

    band, bor = ReduceOp.BAND, ReduceOp.BOR
    ranks_disagree(allreduce(bor), allreduce(band), "Mismatched reduction operation")
    ranks_disagree(scatter(bor), scatter(band), "Mismatched reduction operation")
    ranks_disagree(reduce(last), reduce(0), "Mismatched REDUCE root ranks")
    ranks_disagree(reduce(0), allreduce(band), "Mismatched operations")
    ranks_disagree(scatter(band), allreduce(band), "Mismatched operations")
    ranks_disagree(scatter(ReduceOp.MAX), allreduce(ReduceOp.MAX), "Mismatched operations")
    assert torch.equal(x, torch.arange(n, dtype=torch.int32))


@several()
def test_disagreement_about_what_moves():
    """The errors of all ranks name the calls and the roots, also on ranks that neither send nor receive there."""
    n, me, last = size(), rank(), size() - 1

    def parts():
        return [torch.zeros(2) for _ in range(n)]

    def gather(root, elements=2):
        return lambda: dist.gather(
            torch.ones(elements), [torch.zeros(elements) for _ in range(n)] if me == root else None, root
        )

    def scatter(root):
        return lambda: dist.scatter(torch.zeros(2), parts() if me == root else None, root)

    def all_to_all():
        dist.all_to_all_single(torch.zeros(n, 2), torch.ones(n, 2))

    ranks_disagree(gather(last), gather(0), rf"Mismatched GATHER root ranks.*rank {last}: {last}\)")
    ranks_disagree(scatter(last), scatter(0), rf"Mismatched SCATTER root ranks.*rank {last}: {last}\)")
    ranks_disagree(gather(0), scatter(0), r"Mismatched operations: .*\bGATHER.*\bSCATTER|\bSCATTER.*\bGATHER")
    ranks_disagree(gather(0), all_to_all, "Mismatched operations: .*ALLTOALL.*GATHER")
    ranks_disagree(gather(0, 3), gather(0), "Mismatched GATHER tensor shapes")
    gather(last)()  # the group goes on
    scatter(last)()


@several()
@pytest.mark.parametrize("tensor", [torch.ones(1, dtype=torch.int32), torch.ones(1, dtype=torch.uint8)], ids=str)
def test_a_barrier_is_no_allreduce(tensor):
    why = "Mismatched operations: .*ALLREDUCE.*BARRIER"
    ranks_disagree(dist.barrier, lambda: dist.all_reduce(tensor, ReduceOp.MAX), why)
    ranks_disagree(lambda: dist.all_reduce(tensor, ReduceOp.MAX), dist.barrier, "Mismatched operations: .*BARRIER")
    dist.barrier()


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", FLOATS)
def test_average(dtype):
    t = mine((40,), dtype)
    dist.all_reduce(t, ReduceOp.AVG)
    check(t, (reduced(of_all((40,), torch.float64), "SUM") / size()).to(dtype))


def test_allreduce_of_complex_and_strided():
    t = torch.complex(mine((4,), torch.float32), mine((4,), torch.float32, seed=1))
    dist.all_reduce(t)
    check(t.real, reduced(of_all((4,), torch.float32), "SUM"))
    check(t.imag, reduced(of_all((4,), torch.float32, seed=1), "SUM"))
    t = mine((4, 6), torch.float32).t()
    dist.all_reduce(t)
    check(t, reduced(of_all((4, 6), torch.float32), "SUM").t())
    wide = torch.zeros(4, 6)
    wide[:, ::2] = mine((4, 3), torch.float32)
    dist.all_reduce(wide[:, ::2])
    check(wide[:, ::2], reduced(of_all((4, 3), torch.float32), "SUM"))
    assert (wide[:, 1::2] == 0).all()


def test_complex_numbers():
    """Complex numbers can be added, in every form. They have no order, and the engine cannot multiply them."""
    group = dist.distributed_c10d._get_default_group()
    n = size()

    def of(r, shape):
        return torch.complex(of_rank(r, shape, torch.float64), of_rank(r, shape, torch.float64, seed=1))

    total = sum(of(r, (n, 3)) for r in range(n))
    t = of(rank(), (n, 3))
    group.allreduce([t]).wait()
    torch.testing.assert_close(t, total)
    t = of(rank(), (n, 3)).conj()
    group.allreduce([t]).wait()
    torch.testing.assert_close(t.resolve_conj(), total.conj().resolve_conj())
    tensors = [of(rank(), (n, 3)), torch.ones(2)]
    group.allreduce_coalesced(tensors).wait()
    torch.testing.assert_close(tensors[0], total)
    t = of(rank(), (n, 3))
    dist.reduce(t, 0)
    torch.testing.assert_close(t, total if rank() == 0 else of(rank(), (n, 3)))
    mine = torch.empty(3, dtype=torch.complex128)
    group._reduce_scatter_base(mine, of(rank(), (n, 3))).wait()
    torch.testing.assert_close(mine, total[rank()])
    for op in ("MAX", "PRODUCT", "BAND"):
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(ReduceOp, op)
        with pytest.raises(ValueError, match="complex"):
            group.allreduce([torch.ones(2, dtype=torch.complex64)], options)


def test_allreduce_coalesced():
    tensors = [mine((n + 1,), torch.float32, seed=n) for n in range(5)]
    dist.all_reduce_coalesced(tensors)
    for n, t in enumerate(tensors):
        check(t, reduced(of_all((n + 1,), torch.float32, seed=n), "SUM"))


def test_like_gloo_to_rounding(gloo):
    t = torch.randn(10007, generator=torch.Generator().manual_seed(rank()))
    ours, theirs = t.clone(), t.clone()
    dist.all_reduce(ours)
    dist.all_reduce(theirs, group=gloo)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    if size() <= 2:
        assert torch.equal(ours, theirs)  # two numbers have one sum


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
def test_broadcast(dtype):
    for root in range(size()):
        t = mine((3, 2), torch.float32, seed=root).to(dtype)
        dist.broadcast(t, root)
        assert torch.equal(t, of_rank(root, (3, 2), torch.float32, seed=root).to(dtype))


@pytest.mark.parametrize("shape", SHAPES)
def test_reduce(shape):
    for root in range(size()):
        t = mine(shape, torch.float32)
        dist.reduce(t, root)
        check(t, reduced(of_all(shape, torch.float32), "SUM") if rank() == root else mine(shape, torch.float32))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("shape", SHAPES)
def test_allgather(shape, dtype):
    outputs = [torch.empty(shape, dtype=dtype) for _ in range(size())]
    dist.all_gather(outputs, mine(shape, torch.float32).to(dtype))
    for output, expected in zip(outputs, of_all(shape, torch.float32)):
        assert torch.equal(output, expected.to(dtype))


def into_tensor():
    return getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base


def test_allgather_into_tensor():
    output = torch.empty(3 * size(), 4)
    into_tensor()(output, mine((3, 4), torch.float32))
    check(output, torch.cat(of_all((3, 4), torch.float32)))


def test_allgather_coalesced():
    inputs = [mine((n + 1,), torch.float32, seed=n) for n in range(3)]
    outputs = [[torch.empty(n + 1) for n in range(3)] for _ in range(size())]
    dist.all_gather_coalesced(outputs, inputs)
    for r, n in itertools.product(range(size()), range(3)):
        check(outputs[r][n], of_rank(r, (n + 1,), torch.float32, seed=n))


@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PRODUCT"])
def test_reduce_scatter(op):
    inputs = [mine((2, 3), torch.float32, seed=r) for r in range(size())]
    output = torch.empty(2, 3)
    dist.reduce_scatter(output, inputs, getattr(ReduceOp, op))
    check(output, reduced(of_all((2, 3), torch.float32, seed=rank()), op))


def test_reduce_scatter_tensor():
    scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
    output = torch.empty(2, 3)
    scatter(output, mine((2 * size(), 3), torch.float32))
    check(output, reduced(of_all((2 * size(), 3), torch.float32), "SUM")[2 * rank() : 2 * rank() + 2])
    scatter(output, mine((2 * size(), 3), torch.float32), ReduceOp.AVG)
    check(output, reduced(of_all((2 * size(), 3), torch.float32), "SUM")[2 * rank() : 2 * rank() + 2] / size())


def test_coalesced_into_tensors():
    group = dist.distributed_c10d._get_default_group()
    inputs = [mine((size() * (n + 1),), torch.float32, seed=n) for n in range(3)]
    shares = [torch.empty(n + 1) for n in range(3)]
    assert group.reduce_scatter_tensor_coalesced(shares, inputs).wait()
    for n, share in enumerate(shares):
        whole = reduced(of_all((size() * (n + 1),), torch.float32, seed=n), "SUM")
        check(share, whole[rank() * (n + 1) : (rank() + 1) * (n + 1)])
    outputs = [torch.empty(size() * (n + 1)) for n in range(3)]
    assert group.allgather_into_tensor_coalesced(outputs, shares).wait()
    for n, output in enumerate(outputs):
        check(output, reduced(of_all((size() * (n + 1),), torch.float32, seed=n), "SUM"))


def test_alltoall_single():
    output = torch.empty(2 * size(), 3)
    dist.all_to_all_single(output, mine((2 * size(), 3), torch.float32))
    sent = of_all((2 * size(), 3), torch.float32)
    check(output, torch.cat([t[2 * rank() : 2 * rank() + 2] for t in sent]))


def test_alltoall_of_uneven_splits():
    """Rank r sends r + q rows to rank q."""
    n = size()

    def sent(r):
        return of_rank(r, (sum(r + q for q in range(n)), 2), torch.float32)

    splits = [rank() + q for q in range(n)]
    output = torch.empty(sum(splits), 2)
    dist.all_to_all_single(output, sent(rank()), splits, splits)
    check(output, torch.cat([sent(r).split([r + q for q in range(n)])[rank()] for r in range(n)]))


def test_alltoall_of_lists():
    inputs = [torch.full((rank() + q + 1,), 10.0 * rank() + q) for q in range(size())]
    outputs = [torch.empty(rank() + q + 1) for q in range(size())]
    dist.all_to_all(outputs, inputs)
    for q, output in enumerate(outputs):
        check(output, torch.full((rank() + q + 1,), 10.0 * q + rank()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_gather_and_scatter(dtype):
    for root in range(size()):
        outputs = [torch.empty((2, 3), dtype=dtype) for _ in range(size())] if rank() == root else None
        dist.gather(mine((2, 3), torch.float32).to(dtype), outputs, root)
        for output, expected in zip(outputs or (), of_all((2, 3), torch.float32)):
            assert torch.equal(output, expected.to(dtype))
        output = torch.empty((2, 3), dtype=dtype)
        dist.scatter(output, outputs, root)
        assert torch.equal(output, mine((2, 3), torch.float32).to(dtype))


def test_objects():
    objects = [None] * size()
    dist.all_gather_object(objects, {"rank": rank(), "text": "x" * rank()})
    assert objects == [{"rank": r, "text": "x" * r} for r in range(size())]
    objects = [rank(), "of rank", rank()]
    dist.broadcast_object_list(objects, size() - 1)
    assert objects == [size() - 1, "of rank", size() - 1]


def test_barrier():
    """No rank leaves before the last one has come, so every rank sees what that one wrote before."""
    store = dist.distributed_c10d._get_default_store()
    if rank() == size() - 1:
        time.sleep(0.2)
    store.add("came", 1)
    dist.barrier()
    assert store.add("came", 0) == size()


def test_more_operations_than_names(monkeypatch):
    """The second operation of a name waits for the first, without being asked to."""
    from horovod.torch.distributed import _base

    monkeypatch.setattr(_base, "_NAMES", 3)
    group = dist.new_group()
    tensors = [torch.full((4,), float(rank() + i)) for i in range(20)]
    works = [dist.all_reduce(t, group=group, async_op=True) for t in tensors]
    for i, (t, work) in enumerate(zip(reversed(tensors), reversed(works))):
        assert work.wait()
        check(t, torch.full((4,), sum(float(r + 19 - i) for r in range(size()))))
    dist.barrier(group)
    last = [dist.all_reduce(t, group=group, async_op=True) for t in tensors][-1]
    deadline = time.monotonic() + 30
    while not last.is_completed():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_ranks_join_after_different_numbers_of_operations():
    """Groups of all ranks are in step again after hvd.join(). A group of some ranks was never out of step."""
    everybody, some = dist.new_group(), dist.new_group(list(range(max(1, size() - 1))))
    for _ in range(2):
        for i in range(2 + rank()):
            for group in (None, everybody):
                t = torch.ones(3)
                dist.all_reduce(t, group=group)
                check(t, torch.full((3,), float(sum(2 + r > i for r in range(size())))))  # joined ranks give zeros
        t = torch.ones(3)
        early = rank() % 2 == 0 and rank() < max(1, size() - 1)
        work = dist.all_reduce(t, group=some, async_op=True) if early else None
        hvd.join()
        if rank() < max(1, size() - 1):
            work = work or dist.all_reduce(t, group=some, async_op=True)
            work.wait()
            check(t, torch.full((3,), float(max(1, size() - 1))))
        for group in (None, everybody):
            t = torch.ones(3)
            dist.all_reduce(t, group=group)
            check(t, torch.full((3,), float(size())))


def test_order_of_waiting_is_free():
    works = [(torch.full((n + 1,), float(rank())), None) for n in range(8)]
    works = [(t, dist.all_reduce(t, async_op=True)) for t, _ in works]
    for t, work in works if rank() % 2 else reversed(works):
        work.wait()
        check(t, torch.full(t.shape, float(sum(range(size())))))


def test_futures():
    t = torch.full((3,), float(rank()))
    future = dist.all_reduce(t, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    check(doubled.wait(), torch.full((3,), 2.0 * sum(range(size()))))
    work = dist.all_reduce(t.clone(), async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.get_future().wait() == work.get_future().wait() == work.result()


def test_futures_that_wait_for_others():
    """Futures are waited for in C++, which cannot drive the engine, and on the thread that completes futures."""
    n = size()

    def start(value=1.0):
        return dist.all_reduce(torch.full((3,), value), async_op=True).get_future()

    def doubled(future):
        return future.then(lambda f: f.value()[0] * 2)

    nested = start().then(lambda f: doubled(start(2.0)).wait() + f.value()[0])
    check(nested.wait(), torch.full((3,), 5.0 * n))
    first, later = start(), start(3.0)
    first = first.then(lambda f: doubled(later).wait() + f.value()[0])
    check(first.wait(), torch.full((3,), 7.0 * n))
    many = [start(float(i)) for i in range(50)]
    for i, future in enumerate(torch.futures.wait_all(many)):
        check(future[0], torch.full((3,), float(i * n)))


def test_nothing_is_held_for_ever():
    for i in range(8 * _work._FORGOTTEN_KEPT):
        dist.all_reduce(torch.ones(1), async_op=True)  # nobody waits
        if i % 16 == 0:
            dist.barrier()
    assert len(_work._held) <= 3 * _work._FORGOTTEN_KEPT
    dist.barrier()
    for work in list(_work._held.values()):
        work.wait()
    assert not _work._held
    group = dist.distributed_c10d._get_default_group()
    assert not group._latest


@several()
def test_messages():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for dtype, shape in [(torch.float32, (3, 4)), (torch.bool, (5,)), (torch.float64, (0,)), (torch.int64, ())]:
        sent = dist.isend(mine(shape, dtype), right, tag=7)
        t = torch.empty(shape, dtype=dtype)
        assert dist.recv(t, left, tag=7) == left
        sent.wait()
        assert torch.equal(t, of_rank(left, shape, dtype))


@several()
def test_messages_keep_their_order_and_tags():
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    sent = [dist.isend(torch.full((2,), float(i)), right, tag=i % 2) for i in range(10)]
    even = [torch.empty(2) for _ in range(5)]
    odd = [torch.empty(2) for _ in range(5)]
    works = [dist.irecv(t, left, tag=1) for t in odd] + [dist.irecv(t, left, tag=0) for t in even]
    for work in works + sent:
        work.wait()
    assert [int(t[0]) for t in even] == [0, 2, 4, 6, 8]
    assert [int(t[0]) for t in odd] == [1, 3, 5, 7, 9]


@several()
def test_large_messages_cross():
    """Messages that are larger than what is buffered for a receiver, in both directions at once."""
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    t = torch.empty(2_000_000)
    ops = [dist.P2POp(dist.isend, torch.full((2_000_000,), float(rank())), right), dist.P2POp(dist.irecv, t, left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert (t == left).all()


@several()
def test_receive_from_any():
    if rank() == 0:
        seen = set()
        for _ in range(size() - 1):
            t = torch.empty(1)
            sender = dist.recv(t, tag=3)
            assert int(t) == sender
            seen.add(sender)
        assert seen == set(range(1, size()))
    else:
        dist.send(torch.tensor([float(rank())]), 0, tag=3)
    dist.barrier()


def subsets():
    n = hvd_size()
    return [list(c) for k in range(1, n) for c in itertools.combinations(range(n), k)]


@several()
def test_subgroups():
    """All ranks make the groups, and members use them. Ranks of the world are translated to ranks of the group."""
    made = [(ranks, dist.new_group(ranks)) for ranks in subsets()]
    for ranks, group in made:
        if rank() not in ranks:
            continue
        assert dist.get_rank(group) == ranks.index(rank())
        t = mine((5,), torch.float32)
        dist.all_reduce(t, group=group)
        check(t, reduced([of_rank(r, (5,), torch.float32) for r in ranks], "SUM"))
        t = mine((2,), torch.float32)
        dist.broadcast(t, ranks[-1], group=group)
        check(t, of_rank(ranks[-1], (2,), torch.float32))
        outputs = [torch.empty(2) for _ in ranks]
        dist.all_gather(outputs, mine((2,), torch.float32), group=group)
        check(torch.stack(outputs), torch.stack([of_rank(r, (2,), torch.float32) for r in ranks]))
        if len(ranks) > 1:
            if rank() == ranks[0]:
                dist.send(torch.tensor([41.0]), ranks[1], group=group)
            elif rank() == ranks[1]:
                t = torch.empty(1)
                assert dist.recv(t, ranks[0], group=group) == ranks[0]
                assert t == 41
    dist.barrier()
    for _, group in made:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    dist.barrier()


@several()
def test_groups_of_the_same_ranks():
    """They share a process set, but none of their operations."""
    ranks = list(range(size() - 1)) if size() > 2 else [0]
    one, other = dist.new_group(ranks), dist.new_group(ranks)
    if rank() in ranks:
        a, b = torch.ones(2), torch.full((3,), 2.0)
        first, second = (one, other) if rank() == 0 else (other, one)
        works = {first: None, second: None}
        for group in works:  # in another order on rank 0
            works[group] = dist.all_reduce(a if group is one else b, group=group, async_op=True)
        for work in works.values():
            work.wait()
        check(a, torch.full((2,), float(len(ranks))))
        check(b, torch.full((3,), 2.0 * len(ranks)))
    dist.barrier()


@several()
def test_many_groups_one_after_the_other():
    """They are more than can exist at a time: the process set of a destroyed group is removed."""
    for _ in range(40):
        group = dist.new_group([0])
        if rank() == 0:
            dist.all_reduce(torch.ones(1), group=group)
            dist.destroy_process_group(group)
        del group
    dist.barrier()


@several()
def test_disagreements_are_told_to_all():
    """Each is an error on all ranks, and the group goes on."""
    group = dist.distributed_c10d._get_default_group()
    odd = rank() == size() - 1
    for start in [
        lambda: dist.all_reduce(torch.ones(4 if odd else 3)),
        lambda: dist.all_reduce(torch.ones(3, dtype=torch.float64 if odd else torch.float32)),
        lambda: dist.all_reduce(torch.ones(3), ReduceOp.MAX if odd else ReduceOp.SUM),
        lambda: dist.broadcast(torch.ones(4 if odd else 3), 0),
        lambda: dist.broadcast(torch.ones(3), 1 if odd else 0),
        lambda: dist.all_gather([torch.empty(4 if odd else 3) for _ in range(size())], torch.ones(4 if odd else 3)),
        lambda: group._reduce_scatter_base(torch.empty(1 + odd), torch.ones((1 + odd) * size())).wait(),
        lambda: dist.barrier() if odd else dist.all_gather([torch.empty(1)] * size(), torch.ones(1)),
    ]:
        with pytest.raises(RuntimeError, match="(?i)mismatched") as e:
            start()
        assert isinstance(e.value, HorovodInternalError)
    future = dist.all_reduce(torch.ones(4 if odd else 3), async_op=True).get_future()
    with pytest.raises(RuntimeError, match="(?i)mismatched"):
        future.wait()
    t = torch.ones(2)
    dist.all_reduce(t)
    check(t, torch.full((2,), float(size())))


@several()
def test_alltoall_of_splits_that_differ():
    """The output of rank 0 is too small for what it gets; the others are told so too, or get theirs."""
    n = size()
    output = torch.empty(n - 1 if rank() == 0 else n)
    splits = [0] + [1] * (n - 1) if rank() == 0 else [1] * n
    with pytest.raises(RuntimeError, match="Alltoall") if rank() == 0 else contextlib.suppress(RuntimeError):
        dist.all_to_all_single(output, torch.ones(n), splits, [1] * n)
    dist.barrier()


@several()
@pytest.mark.parametrize("wait", [True, False])
def test_alltoall_of_other_rows_though_as_many(wait):
    """Equal parts are expected, and the others' parts add up to them: only the rows that came tell it."""
    if dist.get_world_size() != 3:
        pytest.skip("of three ranks")
    x, y = torch.arange(6.0), torch.zeros(6)
    splits = [([2, 2, 2], [2, 1, 3]), (), ([3, 2, 1], [2, 3, 1])][rank()]
    if rank() == 1:
        with pytest.raises(HorovodInternalError, match=r"brought \[1, 2, 3\] rows, .* was to take \[2, 2, 2\]"):
            work = dist.all_to_all_single(y, x, async_op=not wait)
            work.wait()
    else:
        work = dist.all_to_all_single(y, x, *splits, async_op=not wait)
        if not wait:
            work.wait()
    dist.barrier()


@several()
def test_messages_of_the_wrong_size():
    if rank() == 0:
        dist.send(torch.ones(3), 1, tag=9)
        dist.send(torch.ones(3), 1, tag=10)
    elif rank() == 1:
        sent = "receive from rank 0 with tag {}: the tensor that rank 0 has sent has 3 elements of torch.float32, "
        with pytest.raises(RuntimeError, match=sent.format(9) + "that to receive it 4 elements of torch.float32"):
            dist.recv(torch.empty(4), 0, tag=9)
        with pytest.raises(RuntimeError, match=sent.format(10) + "that to receive it 1 elements of torch.float64"):
            dist.recv(torch.empty(1, dtype=torch.float64), 0, tag=10)
        dist.recv(torch.empty(3), 0, tag=10)
    dist.barrier()


@several()
@pytest.mark.parametrize("anybody", [False, True])
def test_messages_of_another_dtype(anybody):
    """An equal number of bytes is not enough. The next message arrives all the same."""
    if rank() == 0:
        dist.send(torch.ones(2), 1, tag=4)
        dist.send(torch.ones(2), 1, tag=4)
    elif rank() == 1:
        source = None if anybody else 0
        why = "with tag 4: .* rank 0 has sent has 2 elements of torch.float32, .* receive it 2 elements of torch.int32"
        with pytest.raises(RuntimeError, match=why):
            dist.recv(torch.empty(2, dtype=torch.int32), source, tag=4)
        t = torch.empty(2)
        dist.recv(t, source, tag=4)
        check(t, torch.ones(2))
    dist.barrier()


def test_dtypes_have_labels_of_their_own():
    dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    assert len({_memory.dtype_label(d) for d in dtypes}) == len(dtypes)
    assert _memory.described(12, _memory.dtype_label(torch.float32)) == "3 elements of torch.float32"
    assert _memory.described(5, _memory.dtype_label(torch.float32)) == "5 bytes"
    assert _memory.described(5, 0) == "5 bytes"


def test_bad_arguments():
    group = dist.distributed_c10d._get_default_group()
    n = size()
    for start, why in [
        (lambda: group.allreduce([torch.ones(1), torch.ones(1)]), "one tensor"),
        (lambda: dist.all_reduce(torch.ones(2), ReduceOp.BAND), "there is no band of float32; it takes uint8"),
        (lambda: dist.all_reduce(torch.ones(2) > 0, ReduceOp.AVG), "there is no average of bool"),
        (lambda: group.allreduce([torch.ones(2).to_sparse()]), "layout"),
        (lambda: group.allgather([[torch.ones(2)] * (n + 1)], [torch.ones(2)]), "one for each rank"),
        (lambda: group.allgather([[torch.ones(3)] * n], [torch.ones(2)]), "one size"),
        (lambda: group._allgather_base(torch.ones(2 * n + 1), torch.ones(2)), "times its elements"),
        (lambda: group._reduce_scatter_base(torch.ones(2), torch.ones(2 * n + 1)), "times its elements"),
        (lambda: group.alltoall_base(torch.ones(n), torch.ones(n), [1] * n, [2] * n), "add up"),
        (lambda: group.send([torch.ones(1)], 0, 1 << 20), "out of range"),
        (lambda: group.send([torch.ones(1)], n, 0), "none of the group"),
    ]:
        with pytest.raises(ValueError, match=why):
            start()
    dist.barrier()  # the operations are still in step


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: torch.zeros(3, device="meta"), "device meta has no values"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "a quantized tensor"),
        (lambda: torch.ones(3).to_sparse(), "layout"),
    ],
)
def test_all_ranks_refuse_what_cannot_be_scattered(make, why):
    with pytest.raises(ValueError, match=why):
        dist.scatter(make(), [make() for _ in range(size())] if rank() == 0 else None, src=0)
    dist.barrier()  # the operations are still in step


def test_elements_that_share_memory_are_not_written():
    """Every rank refuses the call at once, whether or not its own tensor would be written."""
    group = dist.distributed_c10d._get_default_group()
    n = size()
    x, wide = torch.ones(3), torch.ones(1).expand(3)
    windows = torch.arange(4.0).as_strided((3, 2), (1, 1))
    for start in [
        lambda: dist.all_reduce(wide, async_op=True),
        lambda: dist.all_reduce(windows, async_op=True),
        lambda: group.allreduce_coalesced([x, wide]),
        lambda: dist.reduce(wide, 0, async_op=True),
        lambda: dist.broadcast(wide, 0, async_op=True),
        lambda: dist.all_gather([wide] * n, x, async_op=True),
        lambda: group._allgather_base(wide.expand(n, 3), x),
        lambda: dist.reduce_scatter(wide, [x] * n, async_op=True),
        lambda: group.alltoall([wide] * n, [x] * n),
        lambda: dist.scatter(wide, [x] * n if rank() == 0 else None, src=0, async_op=True),
        lambda: dist.irecv(wide, 0),
    ]:
        with pytest.raises(ValueError, match="writes to a tensor whose elements share memory"):
            start()
    assert torch.equal(windows, torch.arange(4.0).as_strided((3, 2), (1, 1)))
    total = torch.empty(n, 3)
    group._allgather_base(total, wide).wait()  # it is only read
    check(total, torch.ones(n, 3))
    columns = torch.zeros(4, 6)[:, ::2].t()  # no two of its elements share memory
    dist.all_reduce(columns)


@several()
def test_time_out():
    """A wait that lasts too long fails; the operation goes on."""
    group = dist.distributed_c10d._get_default_group()
    t = torch.ones(1)
    if rank() == 0:
        work = group.allreduce([t])
        with pytest.raises(HorovodInternalError, match=r"has not ended within 0.2 s"):
            work.wait(datetime.timedelta(milliseconds=200))
        dist.send(torch.ones(1), 1, tag=5)
        assert work.wait()
    else:
        if rank() == 1:
            dist.recv(torch.ones(1), 0, tag=5)
        dist.all_reduce(t)
    check(t, torch.full((1,), float(size())))


# ---- DistributedDataParallel


def trained(group, hook=None, state=None, steps=5, **options):
    """Weights after a few steps of DDP with several buckets."""
    torch.manual_seed(rank())  # DDP copies rank 0's
    layers = [torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 5)]
    net = torch.nn.Sequential(*layers)
    model = torch.nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.002, **options)
    if hook is not None:
        model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(100 + rank())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 20, generator=data)).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_ddp_trains_as_over_gloo(gloo):
    ours, theirs = trained(None), trained(gloo)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    same = [torch.empty_like(ours) for _ in range(size())]
    dist.all_gather(same, ours)
    assert all(torch.equal(t, ours) for t in same)


def test_ddp_hooks(gloo):
    theirs = trained(gloo)
    torch.testing.assert_close(trained(None, allreduce_hook), theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trained(None, compressed_hook), theirs, rtol=1e-2, atol=1e-2)
    unchanged = CompressedState(hvd.Compression.none)
    torch.testing.assert_close(trained(None, compressed_hook, unchanged), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compressed_hook_rounds_between_hosts_only(compression):
    fine = 1 + 2.0**-12  # no 16-bit float
    one_host = os.environ.get("GOROVOD_TRANSPORT") != "tcp" and hvd.local_size() == size()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
    model.register_comm_hook(CompressedState(compression), compressed_hook)
    model(torch.full((1, 3), fine)).sum().backward()
    (gradient,) = (p.grad for p in model.parameters())
    expected = fine if size() == 1 or one_host else 1.0
    torch.testing.assert_close(gradient, torch.full((1, 3), expected), rtol=1e-6, atol=0)


def test_ddp_whose_hook_waits_in_the_midst_of_backward(gloo):
    def hook(group, bucket):
        dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0]).wait()
        mean = torch.futures.Future()
        mean.set_result(bucket.buffer().div_(size()))
        return mean

    torch.testing.assert_close(trained(None, hook), trained(gloo), rtol=1e-5, atol=1e-6)


def test_ddp_of_a_static_graph(gloo):
    """In its first pass DDP starts all operations at the end, after it has queued the callback that waits for them."""
    ours, theirs = (trained(group, static_graph=True) for group in (None, gloo))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@several()
def test_a_backward_that_others_do_not_join():
    """It fails after the group's time-out, and Ctrl-C ends it; what it has started goes on."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=0.3))
    patient = dist.new_group()
    for process_group in (group, patient):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1), process_group=process_group)
        loss = model(torch.ones(1, 2)).sum()
        if rank() > 0:
            dist.barrier()
            loss.backward()
        elif process_group is group:
            with pytest.raises(RuntimeError, match="has not ended within 0.3 s"):
                loss.backward()
            dist.barrier()
        else:
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                loss.backward()
            timer.join()
            dist.barrier()
    t = torch.ones(2)
    dist.all_reduce(t)
    check(t, torch.full((2,), float(size())))


@several()
def test_ddp_in_a_subgroup():
    ranks = list(range(1, size()))
    group = dist.new_group(ranks)
    if rank() in ranks:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False), process_group=group)
        model(torch.full((1, 2), float(rank()))).sum().backward()
        check(model.module.weight.grad, torch.full((1, 2), sum(ranks) / len(ranks)))
    dist.barrier()


@several()
def test_ddp_of_uneven_inputs():
    """DDP's own join: ranks that have fewer batches take part in the others' steps."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    with model.join():
        for _ in range(3 + rank()):
            model(torch.ones(1, 2)).sum().backward()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    same = [torch.empty_like(weights) for _ in range(size())]
    dist.all_gather(same, weights)
    assert all(torch.equal(t, weights) for t in same)


def test_zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
    plain = torch.nn.Linear(6, 3)
    plain.load_state_dict(model.module.state_dict())
    sharded = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    whole = torch.optim.Adam(plain.parameters(), lr=0.1)
    x = torch.randn(4, 6)
    for _ in range(3):
        for net, optimizer in ((model, sharded), (plain, whole)):
            optimizer.zero_grad()
            net(x).pow(2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(model.module.weight, plain.weight)


# ---- What only newer versions have


@several()
def test_fsdp2():
    """The weights are those of one process that trains on all data."""
    if VERSION < (2, 6):
        pytest.skip("fully_shard is public from PyTorch 2.6 on")
    if not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("fully_shard of this PyTorch is for accelerators only")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (size(),))

    def net():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    plain, model = net(), net()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fsdp.fully_shard(layer, mesh=mesh)
    fsdp.fully_shard(model, mesh=mesh)
    batches = torch.randn(4, size(), 8, 7, generator=torch.Generator().manual_seed(1))
    ours, theirs = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, plain))
    for batch in batches:
        ours.zero_grad()
        model(batch[rank()]).pow(2).mean().backward()
        ours.step()
        theirs.zero_grad()
        plain(batch.flatten(0, 1)).pow(2).mean().backward()
        theirs.step()
    for p, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(p.full_tensor(), expected, rtol=1e-4, atol=1e-5)


@several()
def test_device_mesh_and_dtensor():
    if VERSION < (2, 5):
        pytest.skip("DTensor is public from PyTorch 2.5 on")
    device_mesh = pytest.importorskip("torch.distributed.device_mesh")
    tensor = pytest.importorskip("torch.distributed.tensor")
    shape = (2, 2) if size() == 4 else (1, size())
    mesh = device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=("a", "b"))
    torch.manual_seed(5)
    whole = torch.randn(12, 12)
    a = tensor.distribute_tensor(whole, mesh, [tensor.Shard(0), tensor.Shard(1)])
    b = tensor.distribute_tensor(whole.t().contiguous(), mesh, [tensor.Replicate(), tensor.Shard(0)])
    torch.testing.assert_close((a @ b).full_tensor(), whole @ whole.t())
    assert math.isclose(a.sum().full_tensor().item(), whole.sum().item(), rel_tol=1e-4, abs_tol=1e-4)


def test_functional_collectives():
    if VERSION < (2, 5):
        pytest.skip("older functional collectives ask for other things")
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    group = dist.distributed_c10d._get_default_group()
    t = functional.all_reduce(mine((4,), torch.float32), "sum", group)
    check(t + 0, reduced(of_all((4,), torch.float32), "SUM"))
    t = functional.all_gather_tensor(mine((2, 2), torch.float32), 0, group)
    check(t + 0, torch.cat(of_all((2, 2), torch.float32)))
    t = functional.reduce_scatter_tensor(mine((2 * size(), 2), torch.float32), "sum", 0, group)
    check(t + 0, reduced(of_all((2 * size(), 2), torch.float32), "SUM")[2 * rank() : 2 * rank() + 2])


# ---- Memory that is changed, or used twice, while an operation is in progress.


def gather_into(output, input):
    return (getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base)(output, input, async_op=True)


def amid(start, change):
    """Start an operation that cannot end before ``change`` has run, and return its Work."""
    late = dist.get_rank() == dist.get_world_size() - 1 and dist.get_world_size() > 1
    work = None if late else start()
    if work is not None:
        change()
    hvd.barrier()
    return start() if work is None else work


@pytest.mark.parametrize("n", [60, 1_200_000])
def test_memory_is_kept(n):
    x, y = torch.ones(n), torch.ones(n)
    output = torch.zeros(dist.get_world_size() * n)
    scribbles = []

    def start():
        return [dist.all_reduce(x, async_op=True), gather_into(output, y)]

    def change():
        x.data, y.data = torch.zeros(n), torch.zeros(n)
        scribbles.extend(torch.full((n,), 1e6) for _ in range(6))

    assert all(work.wait() for work in amid(start, change))
    assert bool((output == 1).all())
    assert all(bool((s == 1e6).all()) for s in scribbles)


def test_freed_memory_is_told():
    if dist.get_world_size() == 1:
        pytest.skip("an operation on one rank may have ended before")
    x, output = torch.ones(60), torch.zeros(60 * dist.get_world_size())
    resized = []
    work = amid(
        lambda: gather_into(output, x),
        lambda: resized.append(x.resize_(180)),
    )
    if resized:
        with pytest.raises(HorovodInternalError, match="memory was freed while an operation was using it"):
            work.wait()
    else:
        work.wait()


def test_memory_that_was_freed_before():
    def freed(n):
        x = torch.ones(n)
        x.storage().resize_(0) if not hasattr(x, "untyped_storage") else x.untyped_storage().resize_(0)
        return x

    n, whole, part = dist.get_world_size(), torch.ones(2 * dist.get_world_size()), torch.ones(2)
    for call in (
        lambda: dist.reduce_scatter_tensor(freed(2), whole), lambda: dist.reduce_scatter_tensor(part, freed(2 * n)),
        lambda: gather_into(freed(2 * n), part), lambda: gather_into(whole, freed(2)),
        lambda: dist.all_reduce(freed(2)), lambda: dist.broadcast(freed(2), 0),
        lambda: dist.all_to_all_single(freed(2 * n), whole), lambda: dist.all_to_all_single(whole, freed(2 * n)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="Tensor without memory"):
            call()
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [n, n]


def test_shared_memory_in_order():
    """Operations of a group on the same memory run in the order of the calls, whichever is waited for first."""
    n = size()
    x, output = torch.full((60,), float(rank() + 1)), torch.zeros(60 * n)

    def start():
        return [
            dist.all_reduce(x, async_op=True),
            dist.all_reduce(x, async_op=True),
            gather_into(output, x),
            dist.broadcast(x, n - 1, async_op=True),
            dist.all_reduce(output[1:], async_op=True),
        ]

    works = amid(start, lambda: None)
    (last,) = works[-1].get_future().wait()
    total = float(n * n * (n + 1) // 2)
    check(last, torch.full((60 * n - 1,), n * total))
    check(output[:1], torch.full((1,), total))
    assert all(work.wait() for work in works)
    check(x, torch.full((60,), total))


def test_shared_memory_of_copies_in_order():
    """Also where the engine works on copies: of tensors that are not contiguous, and of lists."""
    n = size()
    total = float(n * (n + 1) // 2)

    big, x, y = (torch.full(shape, float(rank() + 1)) for shape in ((4, 2), (2,), (2,)))
    lists = [torch.zeros(2) for _ in range(n)]
    if rank() == n - 1:
        time.sleep(0.05)
    works = [
        dist.all_reduce(big, async_op=True),
        dist.all_reduce(big.t(), async_op=True),
        dist.all_reduce(big.t(), async_op=True),
        dist.all_reduce(big, async_op=True),
        dist.all_reduce(x, async_op=True),
        dist.reduce(x, n - 1, async_op=True),
        dist.all_gather(lists, y, async_op=True),
        dist.all_reduce(lists[n - 1], async_op=True),
    ]
    assert all(work.wait() for work in reversed(works))
    check(big, torch.full((4, 2), total * n**3))
    check(x, torch.full((2,), total * n if rank() == n - 1 else total))
    check(lists[n - 1], torch.full((2,), float(n * n)))


def test_the_second_of_two_fails_with_the_first():
    if size() == 1:
        pytest.skip("one rank agrees with itself")
    x = torch.ones(10 + rank())
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x[:10], async_op=True)]
    for work in reversed(works):
        with pytest.raises(HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
            work.wait()
    dist.all_reduce(x[:10])


def test_shared_memory_of_two_groups_is_refused():
    if size() == 1:
        pytest.skip("an operation on one rank may have ended before the next one")
    x, group = torch.ones(60), dist.new_group()
    second = []

    def start():
        first = dist.all_reduce(x, async_op=True)
        second.append(dist.all_reduce(x[59:], group=group, async_op=True))
        return first

    amid(start, lambda: None).wait()
    assert bool((x == size()).all())
    with pytest.raises(HorovodInternalError, match=r"writes memory that Allreduce of tensor .*, which is still in"):
        second[0].wait()


def test_all_to_all_in_place():
    n = dist.get_world_size()
    x = torch.arange(n * 1000, dtype=torch.float32) + 10_000_000 * dist.get_rank()
    expected = torch.empty_like(x)
    dist.all_to_all_single(expected, x)
    dist.all_to_all_single(x, x)
    assert torch.equal(x, expected)
