"""Collectives on a part of the ranks: sets given at init, and sets that come and go."""

import itertools
import random

import pytest
import torch
from definitions import check, hvd_size, in_step, of_rank, reduced, rejoin, several, works

import horovod.torch as hvd
from horovod.torch import mpi_ops

NO_SUCH_SET = "Process set provided does not exist, or has not been registered"


def subsets():
    """Every set of two or more ranks but all, then each rank alone; the same list on all ranks."""
    n = hvd_size()
    sizes = [*range(2, n), 1] if n > 1 else []
    return [list(ranks) for size in sizes for ranks in itertools.combinations(range(n), size)]


@pytest.fixture
def again(job):
    """``again(process_sets=…)`` joins the job anew; afterwards the job is as before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOROVOD_DYNAMIC_PROCESS_SETS", raising=False)
        yield rejoin
        if hvd.is_initialized():
            hvd.barrier()
            hvd.shutdown()
        patch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "0")
        hvd.init()


@pytest.fixture
def dynamic(again):
    again(process_sets="dynamic")
    works()


def add(ranks):
    """Add a set; where these are all ranks, a second set of all."""
    return hvd.add_process_set([] if len(ranks) == hvd.size() else ranks)


def of_members(process_set, *args, **kwargs):
    return [of_rank(r, *args, **kwargs) for r in process_set.ranks]


def uses_every_operation(process_set, tag=""):
    """Run each operation on the set, as a member, and compare with the definition."""
    size, rank, ranks = process_set.size(), process_set.rank(), process_set.ranks
    inputs = of_members(process_set, (2 * size + 1, 3), torch.float64)
    mine, total = inputs[rank], reduced(inputs, hvd.Sum)
    share = [(2 * size + 1) // size + (1 if r < (2 * size + 1) % size else 0) for r in range(size)]
    ps = {"process_set": process_set}

    def name(what):
        return f"every.{what}{tag}"

    check(hvd.allreduce(mine, op=hvd.Sum, name=name("sum"), **ps), total)
    check(hvd.allreduce(mine, name=name("average"), **ps), total / size)
    check(hvd.allreduce(mine, op=hvd.Max, name=name("max"), **ps), reduced(inputs, hvd.Max))
    for result in hvd.grouped_allreduce([mine, mine * 2], op=hvd.Sum, name=name("group"), **ps):
        check(result, total)
        total = total * 2
    total = total / 4
    gathered = hvd.allgather(mine[:rank], name=name("gather"), **ps)
    check(gathered, torch.cat([t[:r] for r, t in enumerate(inputs)]))
    check(hvd.grouped_allgather([mine], name=name("gathers"), **ps)[0], torch.cat(inputs))
    for root in range(size):  # roots are ranks of the world
        check(hvd.broadcast(mine, ranks[root], name=name(f"cast.{root}"), **ps), inputs[root])
        assert hvd.broadcast_object(rank, ranks[root], name=name(f"object.{root}"), **ps) == root
    check(
        hvd.alltoall(mine[: 2 * size], name=name("all"), **ps), torch.cat([t[2 * rank : 2 * rank + 2] for t in inputs])
    )
    splits = [(rank + r) % 3 for r in range(size)]
    result, received = hvd.alltoall(mine[: sum(splits)], splits, name=name("splits"), **ps)
    assert received.tolist() == splits  # it is symmetric
    check(hvd.reducescatter(mine, op=hvd.Sum, name=name("scatter"), **ps), total.split(share)[rank])
    check(hvd.grouped_reducescatter([mine], name=name("scatters"), **ps)[0], total.split(share)[rank] / size)
    index = torch.tensor([[rank]])
    sparse = hvd.sparse_allreduce_async(
        torch.sparse_coo_tensor(index, torch.ones(1), (size,)), name("sparse"), hvd.Average, **ps
    )()
    check(sparse.to_dense(), torch.full((size,), 1.0 / size))
    hvd.barrier(**ps)


def is_refused_from_outside(process_set):
    """On a rank that is no member, each operation fails at once and says so."""
    mine, ps = torch.ones(len(process_set.ranks)), {"process_set": process_set}
    root = process_set.ranks[0]
    calls = {
        "Allreduce": [
            lambda: hvd.allreduce(mine, **ps),
            lambda: hvd.allreduce_async_(mine, **ps),
            lambda: hvd.grouped_allreduce([mine, mine], **ps),
        ],
        "Allgather": [lambda: hvd.allgather(mine, **ps), lambda: hvd.grouped_allgather([mine], **ps)],
        "Broadcast": [lambda: hvd.broadcast(mine, root, **ps), lambda: hvd.broadcast_(mine, root, **ps)],
        "Alltoall": [lambda: hvd.alltoall(mine, **ps)],
        "Reducescatter": [lambda: hvd.reducescatter(mine, **ps), lambda: hvd.grouped_reducescatter([mine], **ps)],
        "Barrier": [lambda: hvd.barrier(**ps)],
    }
    for kind, these in calls.items():
        for call in these:
            with pytest.raises(
                ValueError, match=rf"{kind}: Rank {hvd.rank()} is not a member of the provided process set\."
            ):
                call()
    with pytest.raises(ValueError, match="not part of process set"):
        process_set.rank()
    assert process_set.size() == len(process_set.ranks)


# ---- given at init


def test_static_sets(again):
    sets = [hvd.ProcessSet(ranks) for ranks in subsets()]
    again(process_sets=sets)
    assert [s.process_set_id for s in sets] == list(range(1, len(sets) + 1))
    for s in sets:
        assert s.included() == (hvd.rank() in s.ranks)
        assert s.size() == len(s.ranks)
        if s.included():
            assert s.rank() == s.ranks.index(hvd.rank())
            uses_every_operation(s)
        else:
            is_refused_from_outside(s)
    in_step()
    works()
    with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
        hvd.add_process_set([0])
    for s in sets[:1]:
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
            hvd.remove_process_set(s)
    works()


def test_set_of_all_ranks_by_an_empty_list(again):
    """A second set of all ranks."""
    everyone = hvd.ProcessSet([])
    again(process_sets=[everyone])
    assert (everyone.process_set_id, everyone.ranks) == (1, list(range(hvd.size())))
    uses_every_operation(everyone)


def test_static_duplicates(again):
    with pytest.raises(ValueError, match="number 1 .*duplicate"):
        again(process_sets=[hvd.ProcessSet([]), hvd.ProcessSet(range(hvd_size()))])
    assert hvd.is_initialized()
    works()
    if hvd_size() > 1:
        with pytest.raises(ValueError, match="number 2 .*duplicate"):
            again(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([1]), hvd.ProcessSet([0])])
        works()
    with pytest.raises(ValueError, match="number 0 .*duplicate"):  # of all ranks
        again(process_sets=[hvd.ProcessSet(range(hvd_size()))])
    assert hvd.is_initialized()
    works()


def test_static_sets_of_ranks_that_do_not_exist(again):
    for ranks, match in [([0, 99], "invalid rank 99"), ([0, 0], "duplicate rank 0"), ([-1], "invalid rank -1")]:
        with pytest.raises(ValueError, match=f"Horovod initialization failed.*{match}"):
            again(process_sets=[hvd.ProcessSet(ranks)])
        assert not hvd.is_initialized()
        hvd.init()
        works()


@several()
def test_static_sets_that_differ(again):
    last = hvd.size() - 1
    for mine, match in [
        ([[0]] if hvd.rank() == 0 else [[last]], "mismatching values on different ranks"),
        ([[0]] if hvd.rank() == 0 else [[0, last]], "mismatching size"),
        ([[0]] if hvd.rank() == 0 else [[0], [last]], "mismatching numbers of process sets"),
    ]:
        with pytest.raises(ValueError, match=f"Horovod initialization failed.*{match}"):
            again(process_sets=[hvd.ProcessSet(ranks) for ranks in mine])
        hvd.init()
        works()


def test_sets_that_come_too_late(job):
    hvd.barrier()
    with pytest.raises(ValueError, match="was not there when Horovod was initialized"):
        hvd.init(process_sets=[hvd.ProcessSet([])])
    works()


# ---- added and removed


def test_dynamic_sets(dynamic):
    sets = [hvd.add_process_set(ranks if i % 2 else hvd.ProcessSet(ranks)) for i, ranks in enumerate(subsets())]
    for s in sets:
        if s.included():
            uses_every_operation(s)
        else:
            is_refused_from_outside(s)
    for s in sets:
        with pytest.raises(ValueError, match="Attempted to add a duplicate process set"):
            hvd.add_process_set(list(reversed(s.ranks)))
    with pytest.raises(ValueError, match="Attempted to add a duplicate process set"):
        hvd.add_process_set(range(hvd.size()))
    for s in sets:
        assert hvd.remove_process_set(s) is True
        assert s.process_set_id is None
        assert hvd.remove_process_set(s) is False
    in_step()
    works()


def test_environment_makes_sets_dynamic(again, monkeypatch):
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    again()
    s = add([0])
    assert s.process_set_id == 1
    assert hvd.remove_process_set(s) is True


def test_ids_are_used_again_the_oldest_first(dynamic):
    if hvd.size() < 3:
        pytest.skip("needs three sets")
    sets = [hvd.add_process_set([r]) for r in range(3)]
    assert [s.process_set_id for s in sets] == [1, 2, 3]
    for s in (sets[1], sets[0]):
        hvd.remove_process_set(s)
    again = [hvd.add_process_set(ranks) for ranks in ([0], [1], [0, 1])]
    assert [s.process_set_id for s in again] == [2, 1, 4]
    for s in [*again, sets[2]]:
        if s.included():
            uses_every_operation(s)
        hvd.remove_process_set(s)


def test_bad_sets(dynamic):
    for ranks, match in [([0, 99], "invalid rank 99"), ([-1], "invalid rank -1"), ([0, 0], "duplicate rank 0")]:
        with pytest.raises(ValueError, match=match):
            hvd.add_process_set(ranks)
    with pytest.raises(ValueError):
        hvd.add_process_set(["0"])
    works()


@several()
def test_sets_that_differ(dynamic):
    with pytest.raises(ValueError, match="[Mm]ismatch|differ"):
        hvd.add_process_set([0] if hvd.rank() == 0 else [hvd.size() - 1])
    works()
    s = hvd.add_process_set([0])
    if s.included():
        uses_every_operation(s)
    hvd.remove_process_set(s)


def test_unknown_and_removed_sets(dynamic):
    s = hvd.add_process_set([])
    number = s.process_set_id
    hvd.remove_process_set(s)
    with pytest.raises(ValueError, match="not initialized"):
        hvd.allreduce(torch.ones(1), process_set=s)
    s.process_set_id = number  # as if somebody had kept it
    n = hvd.size()
    for call in (
        lambda: hvd.allreduce(torch.ones(n), process_set=s),
        lambda: hvd.allgather(torch.ones(n), process_set=s),
        lambda: hvd.broadcast(torch.ones(n), 0, process_set=s),
        lambda: hvd.alltoall(torch.ones(n), process_set=s),
        lambda: hvd.reducescatter(torch.ones(n), process_set=s),
        lambda: hvd.grouped_allreduce([torch.ones(n)], process_set=s),
        lambda: hvd.barrier(process_set=s),
    ):
        with pytest.raises(ValueError, match=NO_SUCH_SET):
            call()
    for call in (s.size, s.rank):
        with pytest.raises(ValueError, match=f"Unknown process set id {number}"):
            call()
    assert hvd.remove_process_set(s) is False
    works()


@several()
def test_root_outside_of_the_set(dynamic):
    s = hvd.add_process_set([0])
    with pytest.raises(ValueError, match="broadcast received invalid root rank 1 for provided process set"):
        hvd.broadcast(torch.ones(1), 1, process_set=s)
    hvd.remove_process_set(s)
    works()


@several()
def test_removal_ends_what_is_pending(dynamic):
    for turn in range(3):
        s = hvd.add_process_set([])
        handles = []
        if hvd.rank() == 0:
            handles = [
                hvd.allreduce_async(torch.ones(3), name=f"pending.{turn}", process_set=s),
                hvd.grouped_allgather_async([torch.ones(3)] * 2, name=f"pending.{turn}", process_set=s),
            ]
        assert hvd.remove_process_set(s) is True
        for handle in handles:
            with pytest.raises(hvd.HorovodInternalError, match="Process set has been removed"):
                hvd.synchronize(handle)
        in_step()
        works()


@several()
def test_mismatch_in_a_set_hurts_no_other(dynamic):
    s = add([0, 1])
    handle = hvd.allreduce_async(torch.ones(4), name="bystander", op=hvd.Sum)
    if s.included():
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
            hvd.allreduce(torch.ones(3 + hvd.rank()), name="mismatch", process_set=s)
        uses_every_operation(s)
    check(hvd.synchronize(handle), torch.full((4,), float(hvd.size())))
    hvd.remove_process_set(s)
    in_step()
    works()


# ---- several at once


def test_the_same_name_in_several_sets(dynamic):
    sets = [hvd.add_process_set(ranks) for ranks in subsets()]
    pending = {}
    for s in [hvd.global_process_set, *sets]:
        if s.included():
            pending[s] = hvd.allreduce_async(torch.ones(3), name="same", op=hvd.Sum, process_set=s)
    for s, handle in pending.items():
        check(hvd.synchronize(handle), torch.full((3,), float(len(s.ranks))))
    for s in sets:
        hvd.remove_process_set(s)


def start(i, mine, name, s):
    """Start operation number ``i`` of a set."""
    named = {"name": name, "process_set": s}
    if i == 0:
        return hvd.allreduce_async(mine, op=hvd.Sum, **named)
    if i == 1:
        return hvd.allgather_async(mine, **named)
    if i == 2:
        return hvd.broadcast_async(mine, s.ranks[0], **named)
    if i == 3:
        return hvd.alltoall_async(mine, **named)
    if i == 4:
        return hvd.reducescatter_async(mine, op=hvd.Sum, **named)
    return hvd.grouped_allreduce_async([mine, mine], op=hvd.Sum, **named)


@pytest.mark.parametrize("seed", range(5))
def test_overlapping_sets_in_any_order(dynamic, seed):
    """Operations of sets that overlap, started and awaited in another order on each rank, while sets come and go."""
    common, own = random.Random(seed), random.Random(1000 * seed + hvd.rank())
    chosen = subsets()
    common.shuffle(chosen)
    sets = [hvd.global_process_set, *(hvd.add_process_set(ranks) for ranks in chosen[:6])]
    for turn in range(4):
        work = [(s, i) for s in sets if s.included() for i in range(6)]
        own.shuffle(work)
        pending = {}
        for s, i in work:
            mine = of_rank(hvd.rank(), (len(s.ranks) * 2, i + 1), torch.float32, seed=i)
            pending[s, i] = start(i, mine, f"overlap.{i}", s)
        if turn == 1 and len(sets) > 2:  # while the others are under way
            gone = sets.pop(1)
            for i in range(6):
                if (gone, i) in pending:
                    hvd.synchronize(pending.pop((gone, i)))
            hvd.barrier()
            hvd.remove_process_set(gone)
        own.shuffle(work)
        for s, i in work:
            if (s, i) not in pending:
                continue
            result = hvd.synchronize(pending[s, i])
            inputs = of_members(s, (len(s.ranks) * 2, i + 1), torch.float32, seed=i)
            me, total = s.rank(), reduced(inputs, hvd.Sum)
            expected = [
                total,
                torch.cat(inputs),
                inputs[0],
                torch.cat([t[2 * me : 2 * me + 2] for t in inputs]),
                total[2 * me : 2 * me + 2],
                total,
            ][i]
            for one in result if i == 5 else result[:1] if i == 3 else [result]:
                check(one, expected)
        if turn == 2 and len(chosen) > 6:
            sets.append(hvd.add_process_set(chosen[6]))
    for s in sets[1:]:
        hvd.remove_process_set(s)
    assert mpi_ops._handle_map == {}
    in_step()
    works()


@several()
def test_operations_without_names_in_different_numbers_of_sets(dynamic):
    """Operations on a set change the numbers of unnamed operations neither outside of the set nor on all ranks."""
    n = hvd.size()
    first = hvd.add_process_set([0])
    for _ in range(2):
        if first.included():
            for _ in range(3):
                assert hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=first).tolist() == [1, 1]
                hvd.grouped_allreduce([torch.ones(2)], process_set=first)
                hvd.barrier(process_set=first)
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [n] * 2
        assert hvd.grouped_allreduce([torch.ones(1)], op=hvd.Sum)[0].tolist() == [n]
    hvd.remove_process_set(first)
    works()


@several()
def test_a_set_does_not_wait_for_another(dynamic):
    """Rank 0 works in a set while its operation on all ranks still waits for the others."""
    a, b = hvd.add_process_set([0]), hvd.add_process_set([0, 1] if hvd.size() > 2 else [1])
    if hvd.rank() == 0:
        late = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
        for _ in range(20):
            check(hvd.allreduce(torch.ones(3), name="early", op=hvd.Sum, process_set=a), torch.ones(3))
        assert not hvd.poll(late)
    hvd.barrier()
    if hvd.rank() != 0:
        late = hvd.allreduce_async(torch.ones(3), name="late", op=hvd.Sum)
    check(hvd.synchronize(late), torch.full((3,), float(hvd.size())))
    for s in (a, b):
        hvd.remove_process_set(s)


# ---- gradients and optimizers


def test_gradients_in_a_set(dynamic):
    for ranks in subsets():
        s = hvd.add_process_set(ranks)
        if s.included():
            check_gradients(s)
        hvd.remove_process_set(s)
        in_step()


def check_gradients(s):
    size, rank = s.size(), s.rank()
    x = of_rank(hvd.rank(), (2 * size, 2), torch.float64).requires_grad_()
    gradients = of_members(s, (2 * size, 2), torch.float64, seed=1)

    def gradient(y, of=gradients[rank]):
        x.grad = None
        y.backward(of)
        return x.grad

    check(gradient(hvd.allreduce(x, op=hvd.Sum, process_set=s)), reduced(gradients, hvd.Sum))
    gathered = [torch.cat([g] * size) for g in gradients]
    expected = reduced(gathered, hvd.Average)[2 * size * rank : 2 * size * (rank + 1)]
    check(gradient(hvd.allgather(x, process_set=s), gathered[rank]), expected)
    expected = reduced(gradients, hvd.Average) * (1 if rank == size - 1 else 0)
    check(gradient(hvd.broadcast(x, s.ranks[-1], process_set=s)), expected)
    expected = torch.cat([g[2 * rank : 2 * rank + 2] for g in gradients])
    check(gradient(hvd.alltoall(x, process_set=s)), expected)
    y = hvd.reducescatter(x, op=hvd.Sum, process_set=s)
    check(gradient(y, gradients[0][2 * rank : 2 * rank + 2].clone()), gradients[0] * size)


@several()
def test_optimizer_in_a_set(dynamic):
    s = hvd.add_process_set(range(1, hvd.size()))
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("p", p)], process_set=s)
    for _ in range(3):
        (p * hvd.rank()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    # A rank outside goes on alone.
    slope = 0 if hvd.rank() == 0 else sum(s.ranks) / len(s.ranks)
    check(p.detach(), torch.full((3,), -3.0 * slope))
    hvd.remove_process_set(s)
    in_step()


@several()
def test_objects_and_states_in_a_set(dynamic):
    """All functions that make ranks equal leave those outside of the set alone."""
    ranks = list(range(1, hvd.size()))
    process_set = add(ranks)
    if process_set.included():
        root = ranks[-1]
        assert hvd.broadcast_object(hvd.rank(), root, process_set=process_set) == root
        assert hvd.broadcast_object_fn(root, process_set=process_set)(hvd.rank()) == root
        assert hvd.allgather_object(hvd.rank(), process_set=process_set) == ranks
        weight = torch.full((3,), float(hvd.rank()))
        hvd.broadcast_parameters({"weight": weight}, root, process_set=process_set)
        assert weight.tolist() == [root] * 3
        net = torch.nn.Linear(2, 1)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1 * hvd.rank())
        if hvd.rank() == root:
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        hvd.broadcast_optimizer_state(optimizer, root, process_set=process_set)
        assert optimizer.param_groups[0]["lr"] == 0.1 * root
        assert len(optimizer.state) == 2
    else:
        with pytest.raises(ValueError, match="is not a member of the provided process set"):
            hvd.allgather_object(hvd.rank(), process_set=process_set)
    assert hvd.remove_process_set(process_set)
    in_step()
