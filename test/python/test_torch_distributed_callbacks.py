"""Operations that callbacks of futures start, whenever and in whichever thread each rank runs the callback."""

import datetime
import functools
import random
import threading
import time

import pytest
import torch
import torch.distributed as dist
from definitions import check, several

from horovod.torch.distributed import _callbacks

N = 4


@pytest.fixture(scope="module", autouse=True)
def groups():
    torch.set_num_threads(1)
    dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
    yield
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture
def pause():
    """Now and then, and on each rank at other times, let callbacks run before the program goes on."""
    own = random.Random(dist.get_rank())
    return lambda seconds=0.002: own.random() < 0.5 and time.sleep(seconds)


def start(value, group=None):
    """The future of a tensor that is to be ``value`` times the number of ranks, given as a number or the tensor."""
    tensor = value if isinstance(value, torch.Tensor) else torch.full((N,), float(value))
    return dist.all_reduce(tensor, group=group, async_op=True).get_future()


def again(future, group=None):
    """A callback that reduces twice the value again, and waits for that."""
    return start(future.value()[0] * 2, group).wait()[0]


def expect(future, value):
    check(future.wait(), torch.full((N,), float(value)))


def test_each_callback_meets_its_own(pause):
    n = dist.get_world_size()
    for _ in range(20):
        futures = []
        for i in range(5):
            futures.append(start(i).then(again))
            pause()
        plain = [start(10 + i).then(lambda f: f.value()[0]) for i in range(3)]  # the program goes on meanwhile
        for i, future in enumerate(futures):
            expect(future, 2 * n * n * i)
        for i, future in enumerate(plain):
            expect(future, n * (10 + i))


def test_callbacks_of_callbacks(pause):
    n = dist.get_world_size()

    def deep(future, levels):
        value = future.value()[0] + 1
        return start(value).then(functools.partial(deep, levels=levels - 1)).wait() if levels else value

    for levels in (1, 3, 20):  # names of 20 levels are digests
        futures = []
        for i in range(4):
            first = start(torch.full((N,), float(i), dtype=torch.float64))
            futures.append(first.then(functools.partial(deep, levels=levels)))
            pause()
        for i, future in enumerate(futures):
            value = float(i)
            for _ in range(levels + 1):
                value = value * n + 1
            check(future.wait(), torch.full((N,), value, dtype=torch.float64))


def test_a_callback_that_starts_several(pause):
    n = dist.get_world_size()

    def two(future):
        both = [start(future.value()[0] + k) for k in range(2)]
        pause()
        return torch.stack([f.wait()[0] for f in reversed(both)])

    futures = []
    for i in range(5):
        futures.append(start(i).then(two).then(lambda f: start(f.value()).wait()[0]))
        pause()
    for i, future in enumerate(futures):
        check(future.wait(), torch.tensor([[n * (n * (n * i + k))] * N for k in (1, 0)], dtype=torch.float32))


@pytest.mark.parametrize("wait", [False, True])
def test_added_before_the_end_and_after_it(wait):
    """On rank 0 the operation has ended when the callbacks are added, so they run at once."""
    n = dist.get_world_size()
    for _ in range(5):
        works = [dist.all_reduce(torch.full((N,), float(i)), async_op=True) for i in range(3)]
        futures = [work.get_future() for work in works]
        if dist.get_rank() == 0:
            for work in works:
                work.wait()
        nested = [future.then(again) for future in futures]
        other = start(100)
        second = [future.then(lambda f: start(f.value()[0] + 1).wait()[0]) for future in futures]
        for i in range(3):
            expect(second[i], n * (n * i + 1))
            expect(nested[i], 2 * n * n * i)
        check(other.wait()[0], torch.full((N,), 100.0 * n))


def test_ranks_with_other_callbacks_beside():
    """A callback that starts nothing changes nothing, though one rank alone has it."""
    n, seen = dist.get_world_size(), []
    for i in range(10):
        future = start(i)
        if dist.get_rank() == 0:
            future.add_done_callback(lambda f: seen.append(f.value()[0][0].item()))
        expect(future.then(again), 2 * n * n * i)
    assert seen == [float(n * i) for i in range(10)] * (dist.get_rank() == 0)


def test_add_done_callback(pause):
    n, results = dist.get_world_size(), {}
    futures = [start(i) for i in range(5)]
    for i, future in enumerate(futures):
        pause()
        future.add_done_callback(lambda f, i=i: results.update({i: again(f)}))
    for future in futures:
        future.then(lambda f: None).wait()  # after the callback, where that began before
    while len(results) < 5:
        time.sleep(0.001)
    for i, result in results.items():
        check(result, torch.full((N,), 2.0 * n * n * i))


def test_futures_of_futures(pause):
    """Of several, and of a future that a callback completes, before or after somebody adds a callback to it."""
    n = dist.get_world_size()
    for _ in range(10):
        futures = []
        for i in range(4):
            both = torch.futures.collect_all([start(i), start(i + 1)])
            pause()
            futures.append(both.then(lambda f: start(f.value()[0].value()[0] + f.value()[1].value()[0]).wait()[0]))
            own = torch.futures.Future()
            start(i).add_done_callback(lambda f, own=own: own.set_result(f.value()))
            pause()
            futures.append(own.then(again))
        for i in range(4):
            expect(futures[2 * i], n * (n * i + n * (i + 1)))
            expect(futures[2 * i + 1], 2 * n * n * i)


def test_a_group_of_operations(pause):
    """Of a _coalescing_manager: its Work's future has the callbacks of the first one."""
    n, group, futures = dist.get_world_size(), dist.distributed_c10d._get_default_group(), []
    for i in range(10):
        group._start_coalescing(torch.device("cpu"))
        start(i)
        start(i + 1)
        work = group._end_coalescing()
        pause()
        futures.append(work.get_future().then(lambda f: start(f.value()[0] + f.value()[1]).wait()[0]))
        futures.append(start(100))  # the program goes on meanwhile
    for i in range(10):
        expect(futures[2 * i], n * (n * i + n * (i + 1)))
        check(futures[2 * i + 1].wait()[0], torch.full((N,), 100.0 * n))


@several()
def test_callbacks_of_messages(pause):
    """They start further messages. A collective is refused: no other rank of the group has the same future."""
    n, rank = dist.get_world_size(), dist.get_rank()
    after, before = (rank + 1) % n, (rank - 1) % n

    def pass_on(future):
        dist.send(future.value()[0], after, tag=8)
        return future.value()[0]

    for i in range(5):
        received, second = torch.empty(N), torch.empty(N)
        sent = dist.isend(torch.full((N,), 10.0 * i + rank), after, tag=7).get_future()
        future = dist.irecv(received, before, tag=7).get_future()
        again_received = dist.irecv(second, before, tag=8)
        passed = future.then(pass_on)
        both = torch.futures.collect_all([future, start(i)])
        pause()
        for bad, what in ((sent.then(again), "send to"), (future.then(again), "receive from")):
            with pytest.raises(RuntimeError, match=f"future of a {what} rank .* cannot start a collective: .* Wait"):
                bad.wait()
        expect(both.then(lambda f: start(f.value()[1].value()[0]).wait()[0]), n * n * i)
        expect(passed, 10 * i + before)
        again_received.wait()
        check(second, torch.full((N,), 10.0 * i + (before - 1) % n))
        expect(start(i).then(again), 2 * n * n * i)


def test_a_callback_that_raises(pause):
    n = dist.get_world_size()

    def fails(future):
        again(future)
        raise ValueError("of the program")

    futures = []
    for i in range(4):
        futures.append((start(i).then(fails), start(i).then(again)))
        pause()
    for i, (bad, good) in enumerate(futures):
        with pytest.raises(RuntimeError, match="of the program"):
            bad.wait()
        expect(good, 2 * n * n * i)
    expect(start(1).then(again), 2 * n * n)


@several()
def test_an_operation_of_a_callback_that_fails():
    """The error comes to the rank's future, and the group goes on."""
    odd = dist.get_rank() == 0
    futures = [start(i).then(lambda f: start(torch.ones(N + odd)).wait()[0]) for i in range(3)]
    for future in futures:
        with pytest.raises(RuntimeError, match=r"(?s)number \d+\.then\.0 of group|shape"):
            future.wait()
    expect(start(1).then(again), 2 * dist.get_world_size() ** 2)


@several()
def test_two_groups(pause):
    """Callbacks of one group's operations that start some of the other's, both ways."""
    n = dist.get_world_size()
    dist.new_group([0])  # a group that only this rank counts
    half = [dist.new_group([r for r in range(n) if r % 2 == part]) for part in range(2)][dist.get_rank() % 2]
    twin = dist.new_group(list(range(n)))
    m = dist.get_world_size(half)
    for _ in range(10):
        futures = []
        for i in range(3):
            futures += [
                start(i, half).then(lambda f: start(torch.full((N,), 3.0)).wait()[0]),
                start(i).then(functools.partial(again, group=half)),
                start(i).then(functools.partial(again, group=twin)),
                start(i, twin).then(again),
            ]
            pause()
        for i in range(3):
            expect(futures[4 * i], 3 * n)
            expect(futures[4 * i + 1], 2 * n * m * i)
            expect(futures[4 * i + 2], 2 * n * n * i)
            expect(futures[4 * i + 3], 2 * n * n * i)


def test_more_callbacks_than_names(pause):
    n = dist.get_world_size()
    futures = []
    for i in range(3 * _callbacks.NAMES):
        futures.append(start(i).then(again))
        if i % 50 == 0:
            pause()
    for i, future in enumerate(futures):
        expect(future, 2 * n * n * i)
    group = dist.distributed_c10d._get_default_group()
    del futures, future
    assert len(group._lines) <= 3 * _callbacks.NAMES  # those of operations that are held, too


def test_an_earlier_callback_that_does_not_end():
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    future, added, go = start(1, group), threading.Event(), threading.Event()

    def first(_):
        added.set()
        go.wait(30)

    other = threading.Thread(target=lambda: future.then(first))  # which may run it at once
    other.start()
    added.wait(30)
    second = future.then(lambda _: start(2, group))
    with pytest.raises(RuntimeError, match="earlier callback of the same operation, which has not ended"):
        second.wait()
    go.set()
    other.join(30)
