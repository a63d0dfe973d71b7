"""The short way of torch.distributed where operations end late, badly or never, amid interrupts and other threads."""

import datetime
import gc
import resource
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist
from both_ways import interrupted, interrupts_at_any_point
from definitions import hvd_size, several, under_way
from test_torch_distributed_short import (  # noqa: F401
    CALLS,
    groups,
    into_tensor,
    native,
    nothing_is_left,
    pytestmark,
    refuse,
    results,
    way,
    world,
)

import horovod.torch as hvd
from horovod.common import _lib
from horovod.torch.distributed import HorovodInternalError, _base, _short


@several()
@pytest.mark.parametrize("after", [0, 0.05, 0.3])
def test_interrupt_of_a_blocking_call(after):
    """The operation goes on with its tensor."""
    x = torch.ones(10)
    group = world()

    if hvd.rank() == 0:
        references = sys.getrefcount(x)
        interrupted(hvd, lambda: dist.all_reduce(x), after)
        assert group._latest or _short._adrift
        assert sys.getrefcount(x) > references
    hvd.barrier()
    if hvd.rank() != 0:
        dist.all_reduce(x)
    hvd.barrier()
    for work in list(group._latest.values()):
        work.wait()
    assert x.tolist() == [hvd.size()] * 10
    gc.collect()
    forget_what_is_adrift()
    nothing_is_left()


def forget_what_is_adrift():
    """An interrupt may leave operations there, which have ended by now."""
    assert all(operation.status() != _lib.IN_PROGRESS for operation in _short._adrift)
    _short._adrift.clear()


@several()
@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("late", [0, 0.2])
def test_memory_that_is_replaced_meanwhile(late, wait):
    """The engine has the memory of the time of the call."""
    x, done = torch.ones(100_000), threading.Event()
    old = x.detach()
    if hvd.rank() != 0:
        time.sleep(late)
        dist.all_reduce(x)
        assert x[0] == hvd.size()
        return

    def replace():
        while not under_way() and not done.is_set():
            time.sleep(0.0005)
        x.data = torch.zeros(3)

    if wait:
        thread = threading.Thread(target=replace)
        thread.start()
        dist.all_reduce(x)
        done.set()
        thread.join()
    else:
        work = dist.all_reduce(x, async_op=True)
        x.data = torch.zeros(3)
        work.wait()
    assert old[0] == hvd.size() == old[-1] and x.tolist() == [0, 0, 0]
    nothing_is_left()


@several()
def test_memory_that_is_freed_meanwhile():
    x, output = torch.ones(60), torch.zeros(60 * hvd.size())
    if hvd.rank() == 0:
        work = into_tensor()(output, x, async_op=True)
        x.resize_(180)  # the engine only reads there
        hvd.barrier()
        with pytest.raises(HorovodInternalError, match="memory was freed"):
            work.wait()
    else:
        hvd.barrier()
        into_tensor()(output, x)
    nothing_is_left()


@several()
def test_time_out(monkeypatch):
    x, limit = torch.ones(2), datetime.timedelta(seconds=0.3)
    if hvd.rank() == 0:
        with monkeypatch.context() as patch:
            patch.setattr(world(), "_timeout", limit)
            with pytest.raises(
                HorovodInternalError, match=r"allreduce number \d+ of group \d+ has not ended within 0.3 s"
            ):
                dist.all_reduce(x)
        hvd.barrier()
    else:
        hvd.barrier()
        dist.all_reduce(x)
    dist.barrier()
    for work in list(world()._latest.values()):
        work.wait()
    assert x.tolist() == [hvd.size()] * 2
    nothing_is_left()


def test_ddp_takes_the_short_way(monkeypatch):
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 1))
    refuse(monkeypatch)
    for _ in range(3):
        model(torch.ones(4, 10)).sum().backward()
    nothing_is_left()


def test_threads_with_groups_of_their_own():
    made = [dist.new_group(list(range(hvd.size()))) for _ in range(3)]
    failures = []

    def run(group):
        try:
            for i in range(200):
                x = torch.full((4,), float(i))
                dist.all_reduce(x, group=group)
                assert x[0] == hvd.size() * i
                works = [dist.all_reduce(x.clone(), group=group, async_op=True) for _ in range(3)]
                assert all(work.wait() for work in works)
        except BaseException as e:
            failures.append(e)
            raise

    threads = [threading.Thread(target=run, args=(group,)) for group in made]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    for group in made:
        dist.destroy_process_group(group)
    nothing_is_left()


@pytest.mark.skipif(hvd_size() > 1, reason="ranks would start different operations")
def test_interrupts_at_any_point():
    """Later calls work, and no tensor is freed too early."""

    def some(chance):
        for call in chance.sample(list(CALLS.values()), 4):
            results(call, torch.ones(2), chance.random() < 0.5)

    def wait():
        for work in list(world()._latest.values()):
            work.wait()

    assert interrupts_at_any_point(some, 3e-4, wait) > 50
    torch.set_grad_enabled(True)  # an interrupt may keep no_grad() from that
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [hvd.size()] * 3
    forget_what_is_adrift()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.longest(300)
def test_nothing_leaks():
    n = hvd.size()
    x, y, z = torch.ones(2), torch.ones(2 * n), torch.ones(2 * n)
    calls = 200_000 if n == 1 else 10_000

    def some(n):
        for _ in range(n // 5):
            dist.all_reduce(x, dist.ReduceOp.MAX)
            dist.broadcast(x, 0)
            into_tensor()(y, x)
            dist.all_to_all_single(z, y)
            dist.barrier()
        for _ in range(n // 50):
            dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True).wait()

    some(5_000)
    gc.collect()
    counted = [x, y, z, None, _base.pool.free[-1], world()]
    before, memory = [sys.getrefcount(one) for one in counted], resident()
    some(calls)
    gc.collect()
    after = [sys.getrefcount(one) for one in counted]
    assert after[:3] == before[:3]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), (before, after)
    assert resident() - memory < 16 << 20
