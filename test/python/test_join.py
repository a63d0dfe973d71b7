"""Join: ranks that have no more data take part with zeros."""

import pytest
import torch
from definitions import FLOATS, check, hvd_size, of_rank, reduced, rejoin, several, works

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

ALL_OPS = "GOROVOD_JOIN_ALL_OPS"


@pytest.fixture
def all_ops(job, monkeypatch):
    monkeypatch.setenv(ALL_OPS, "1")
    rejoin()
    yield
    monkeypatch.delenv(ALL_OPS)
    rejoin()


def test_join_of_all_at_once():
    for _ in range(5):
        last = hvd.join()
        assert type(last) is int and 0 <= last < hvd.size()
        assert hvd.allgather(torch.tensor([last]), name="last").tolist() == [last] * hvd.size()
        works("works")


@pytest.mark.parametrize("last", range(4))
def test_join_returns_who_was_last(last):
    if last >= hvd.size():
        pytest.skip("no such rank")
    if hvd.rank() == last:
        # The others take part with zeros. They must have joined for this to end.
        for _ in range(3):
            check(hvd.allreduce(torch.ones(3), name="alone", op=hvd.Sum), torch.ones(3))
    assert hvd.join(device=0) == last
    works("works")


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.uint8], ids=str)
def test_allreduce_with_zeros_of_joined_ranks(dtype):
    """Rank r has r + 1 batches. The average is still over all ranks; Min, Max and Product see the zeros, too."""
    n, me = hvd.size(), hvd.rank()
    for batch in range(me + 1):
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            for i, shape in enumerate([(5,), (), (0,), (3, 2)]):
                inputs = [of_rank(r, shape, dtype, low=-2, high=3, seed=batch) for r in range(n)]
                expected = reduced([t if r >= batch else torch.zeros_like(t) for r, t in enumerate(inputs)], op)
                check(hvd.allreduce(inputs[me], name=f"zeros.{op}.{i}", op=op), expected)
        tensors = [torch.ones(3, dtype=dtype), torch.ones(4, dtype=dtype)]
        for result in hvd.grouped_allreduce(tensors, name="zeros.group", op=hvd.Sum):
            assert result.tolist() == [n - batch] * len(result)
    assert hvd.join() == n - 1
    works("works")


@several()
def test_uneven_training():
    """Ranks with different numbers of batches reach the model of the definition, in each of several epochs."""
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1).double()
    reference = torch.nn.Linear(3, 1).double()
    reference.load_state_dict(net.state_dict())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    n, batches = hvd.size(), [2 + (3 * r) % 4 for r in range(hvd.size())]

    def x(rank, epoch, batch):
        return of_rank(rank, (4, 3), torch.float64, seed=100 * epoch + batch)

    def loss(model, x):
        return (model(x) - 1).square().mean()

    for epoch in range(3):
        for batch in range(batches[hvd.rank()]):
            optimizer.zero_grad()
            loss(net, x(hvd.rank(), epoch, batch)).backward()
            optimizer.step()
        last = hvd.join()
        assert batches[last] == max(batches)
        # A rank that has joined misses steps; the last one has the model.
        hvd.broadcast_parameters(net.state_dict(), root_rank=last)
        for batch in range(max(batches)):
            plain.zero_grad()
            for r in range(n):
                if batch < batches[r]:
                    (loss(reference, x(r, epoch, batch)) / n).backward()
            plain.step()
        for p, q in zip(net.parameters(), reference.parameters()):
            torch.testing.assert_close(p, q)


@several()
def test_operations_without_names_after_an_uneven_join():
    """Ranks that have done different numbers of operations number them alike again."""
    n, me = hvd.size(), hvd.rank()
    for epoch in range(3):
        for _ in range((me + epoch) % n):
            hvd.allreduce(torch.ones(2))
            hvd.grouped_allreduce([torch.ones(2), torch.ones(3)])
        hvd.join()
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [n] * 2
        assert hvd.grouped_allreduce([torch.ones(2), torch.ones(1)], op=hvd.Sum)[1].tolist() == [n]
        assert hvd.allgather(torch.tensor([me])).tolist() == list(range(n))
        assert hvd.broadcast(torch.tensor(me), n - 1).item() == n - 1
        assert hvd.reducescatter(torch.ones(n), op=hvd.Sum).tolist() == [n]
        assert hvd.alltoall(torch.full((n,), me)).tolist() == list(range(n))
    works("works")


@several()
def test_others_wait_in_join_for_what_was_submitted_before():
    """A rank that has started an operation and then joins takes part in it."""
    handle = hvd.allreduce_async(torch.full((3,), float(hvd.rank() + 1)), name="before", op=hvd.Sum)
    hvd.join()
    check(hvd.synchronize(handle), torch.full((3,), float(sum(range(hvd.size() + 1)))))


@several()
@pytest.mark.parametrize("kind", ["Allgather", "Broadcast", "Alltoall", "Reducescatter"])
def test_what_join_refuses(kind):
    """Every rank that has not joined gets the error, and can go on."""
    n = hvd.size()
    calls = {
        "Allgather": lambda: hvd.allgather(torch.ones(n), name="refused"),
        "Broadcast": lambda: hvd.broadcast(torch.ones(n), n - 1, name="refused"),
        "Alltoall": lambda: hvd.alltoall(torch.ones(n), name="refused"),
        "Reducescatter": lambda: hvd.reducescatter(torch.ones(n), name="refused"),
    }
    groups = {
        "Allgather": lambda: hvd.grouped_allgather([torch.ones(n)] * 2, name="refused"),
        "Reducescatter": lambda: hvd.grouped_reducescatter([torch.ones(n)] * 2, name="refused"),
    }
    for _ in range(2):
        if hvd.rank() != 0:
            for call in filter(None, (calls[kind], groups.get(kind), calls[kind])):
                with pytest.raises(hvd.HorovodInternalError, match=f"{kind} is not supported with Join at this time"):
                    call()
            check(hvd.allreduce(torch.ones(2), name="still", op=hvd.Sum), torch.full((2,), n - 1.0))
        assert hvd.join() != 0
        works("works")


@several()
def test_barrier_counts_only_who_has_not_joined():
    if hvd.rank() != 0:
        for _ in range(3):
            hvd.barrier()
    assert hvd.join() != 0
    works("works")


@several()
def test_a_set_knows_nothing_of_join(job):
    hvd.barrier()
    hvd.shutdown()
    s = hvd.ProcessSet([0])
    hvd.init(process_sets=[s])
    if hvd.rank() == 0:
        for _ in range(3):
            check(hvd.allgather(torch.ones(2), name="set", process_set=s), torch.ones(2))
    hvd.join()
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


# ---- GOROVOD_JOIN_ALL_OPS=1


@several()
def test_all_operations_with_a_joined_rank(all_ops):
    """A rank that has joined gives an empty part."""
    n, me = hvd.size(), hvd.rank()
    for _ in range(2):
        if me != 0:
            others = [torch.full((n, 2), float(r)) for r in range(1, n)]
            check(hvd.allgather(others[me - 1], name="gather"), torch.cat(others))
            check(hvd.grouped_allgather([others[me - 1]], name="gather")[0], torch.cat(others))
            check(hvd.broadcast(others[me - 1], n - 1, name="cast"), others[-1])
            splits = [0] + [1] * (n - 1)
            result, received = hvd.alltoall(others[me - 1], splits, name="all")
            check(result, torch.cat([t[:1] for t in others]))
            assert received.tolist() == splits
            total = sum(others)
            check(hvd.reducescatter(others[me - 1], op=hvd.Sum, name="scatter"), total[me : me + 1])
        assert hvd.join() != 0
        works("works")


@several()
def test_what_has_no_meaning_is_refused(all_ops):
    n = hvd.size()
    if hvd.rank() != 0:
        with pytest.raises(hvd.HorovodInternalError, match="root rank that has joined.*root rank: 0"):
            hvd.broadcast(torch.ones(2), 0, name="root")
        with pytest.raises(hvd.HorovodInternalError, match="joined"):
            hvd.alltoall(torch.ones(n), name="sends")
    assert hvd.join() != 0
    works("works")


def test_alone():
    if hvd_size() == 1:
        assert hvd.join() == 0
