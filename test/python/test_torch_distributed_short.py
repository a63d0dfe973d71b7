"""The short way of torch.distributed, through the extension, and the long one: results and errors are the same."""

import datetime
import gc
import itertools
import os
import random
import re
import sys
import time

import pytest
import torch
import torch.distributed as dist
from both_ways import by_both, way
from definitions import DTYPES, of_rank, several
from test_native import TENSORS, outcome

import horovod.torch as hvd
from horovod.torch import _submission
from horovod.torch.distributed import HorovodInternalError, _base, _short, _work

c10d = dist.distributed_c10d
native = _submission.native
pytestmark = pytest.mark.skipif(native is None, reason="this Python takes the long way alone")


@pytest.fixture(scope="module", autouse=True)
def groups():
    torch.set_num_threads(1)
    dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
    yield
    dist.barrier()
    dist.destroy_process_group()


def world():
    return c10d._get_default_group()


def into_tensor():
    return getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base


CALLS = {
    "all_reduce": lambda x, **k: dist.all_reduce(x, **k),
    "broadcast": lambda x, **k: dist.broadcast(x, 0, **k),
    "all_gather_into_tensor": lambda x, **k: into_tensor()(whole(x), x, **k),
    "reduce_scatter_tensor": lambda x, **k: dist.reduce_scatter_tensor(x, whole(x), **k),
    "all_to_all_single": lambda x, **k: dist.all_to_all_single(whole(x), whole(x), **k),
    "barrier": lambda x, **k: dist.barrier(**k),
}
last = None  # what whole has made


def whole(x):
    """A tensor of as many elements like those of ``x`` for each rank; ``last`` is the first of a call's."""
    global last
    made = x
    if isinstance(x, torch.Tensor):
        dtype = torch.float32 if x.is_quantized else x.dtype
        made = (torch.arange(x.numel() * hvd.size()) % 2 + 1).to(dtype)
    last = last if last is not None else made
    return made


def results(call, x, wait):
    """What a call makes of ``x``."""
    global last
    last = None
    if wait:
        assert call(x) is None
    else:
        assert call(x, async_op=True).wait() is True
    return "; ".join("freed" if is_freed(t) else repr(t) for t in (x, last))


def is_freed(x):
    plain = type(x) is torch.Tensor and x.layout is torch.strided and x.device.type == "cpu"
    return plain and x.numel() > 0 and x.data_ptr() == 0


def told(outcome):
    """The outcome in words, without the numbers of operations and addresses."""
    return re.sub(r"number \d+|torch\.\d+\.\d+|0x\w+", "N", repr(outcome))


def same(call):
    """Both ways lead to the same, but for the number of the operation."""
    short, long = map(told, by_both(call, outcome))
    assert short == long
    nothing_is_left()


def nothing_is_left():
    group = world()
    assert group._latest == {} and group._late == [] and len(group._returned) <= 1 and _short._adrift == {}


def refuse(monkeypatch):
    """From now on fail where Python code describes an operation."""

    def fail(*args, **kwargs):
        raise AssertionError("this went the long way")

    monkeypatch.setattr(_base.pool, "describe", fail)


@pytest.fixture
def only_short(monkeypatch):
    refuse(monkeypatch)


@pytest.fixture
def no_work(monkeypatch):
    """Fails where there is a Work."""

    def refuse(*args, **kwargs):
        raise AssertionError("this has made a Work")

    monkeypatch.setattr(_work, "hold", refuse)


# ---- the plain case is short


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_plain_tensors(name, dtype, wait, only_short):
    for shape in ((2,), (3, 1, 2), (1,) * 8):
        x = of_rank(hvd.rank(), shape, dtype)
        results(CALLS[name], x, wait)
    nothing_is_left()


@pytest.mark.parametrize("name", CALLS)
def test_blocking_calls_have_no_work(name, monkeypatch, no_work):
    monkeypatch.setattr(world(), "_patience_ms", 60_000)
    for _ in range(20):
        results(CALLS[name], torch.ones(2), True)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_results(name, wait):
    for shape, dtype in itertools.product([(1,), (5,), (2, 3)], [torch.float32, torch.int64, torch.bfloat16]):
        ours = []
        for compiled in (True, False):
            with way(compiled):
                x = of_rank(hvd.rank(), shape, dtype)
                ours.append(results(CALLS[name], x, wait))
        assert ours[0] == ours[1]


@pytest.mark.parametrize("op", ["SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"])
def test_reduce_ops(op, only_short):
    for dtype in (torch.int32, torch.int64):
        x = of_rank(hvd.rank(), (5,), dtype, 1, 4)
        expected = [of_rank(r, (5,), dtype, 1, 4) for r in range(hvd.size())]
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        folded = expected[0]
        for other in expected[1:]:
            folded = {
                "SUM": torch.add, "AVG": torch.add, "MIN": torch.minimum, "MAX": torch.maximum, "PRODUCT": torch.mul,
                "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
            }[op](folded, other)  # fmt: skip
        folded = torch.div(folded, hvd.size(), rounding_mode="trunc") if op == "AVG" else folded
        assert x.tolist() == folded.tolist()


def test_a_subgroup(only_short):
    group = dist.new_group(list(range(hvd.size())))
    x = torch.full((3,), float(hvd.rank()))
    dist.all_reduce(x, group=group)
    dist.broadcast(x, hvd.size() - 1, group=group)
    assert x.tolist() == [sum(range(hvd.size()))] * 3
    dist.destroy_process_group(group)


def test_an_unknown_caller_gets_a_work():
    """Who calls the group's methods gets a Work, whatever is said of waiting."""
    x = torch.ones(2)
    for async_op in (True, False):
        opts = c10d.AllreduceOptions()
        if hasattr(opts, "asyncOp"):
            opts.asyncOp = async_op
        work = world().allreduce([x], opts)
        assert isinstance(work, _work.Work) and work.wait() and work.result()[0] is x
        assert work.get_future().wait()[0] is x
    assert x.tolist() == [hvd.size() ** 2] * 2


def test_functions_that_are_not_as_expected(monkeypatch):
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: None)
    assert _short.code_of("all_reduce") is None
    monkeypatch.setattr(dist, "all_reduce", 1)
    assert _short.code_of("all_reduce") is None
    assert _short.code_of("no function") is None
    assert _short.code_of("no function", "broadcast").co_name == "broadcast"


def test_reduce_ops_are_told_apart():
    from horovod.torch.distributed import _reductions

    assert len(_reductions._engine_ops()) == 8
    assert hash(dist.ReduceOp.SUM) in _reductions._engine_ops()


# ---- both ways count alike


@several()
def test_ranks_on_different_ways():
    """One rank has odd tensors, which go the long way, or no extension at all."""
    for i in range(20):
        x = torch.full((2, 2), float(i))
        x = x.t() if (i + hvd.rank()) % 3 else x
        with way(bool((i + hvd.rank()) % 2)):
            dist.all_reduce(x, async_op=True).wait() if i % 5 == 0 else dist.all_reduce(x)
        assert x.tolist() == [[hvd.size() * i] * 2] * 2
    nothing_is_left()


def test_more_operations_than_names(monkeypatch):
    """One that has the name of another under way comes after it."""
    monkeypatch.setattr(_base, "_NAMES", 3)
    works, xs = [], [torch.full((1,), float(i)) for i in range(20)]
    for x in xs:
        works.append(dist.all_reduce(x, async_op=True))
    dist.all_reduce(torch.ones(1))
    for work in works:
        work.wait()
    assert [x.item() for x in xs] == [hvd.size() * i for i in range(20)]
    gc.collect()
    nothing_is_left()


def counted():
    figures = hvd.metrics()
    tensors = [((t["op"], t["dtype"], t["process_set"]), t["count"]) for t in figures["tensors"]]
    collectives = [((c["op"], c["size_class"]), (c["count"], c["bytes"])) for c in figures["collectives"]]
    return dict(tensors + collectives)


def test_metrics():
    counts = []
    for compiled in (True, False):
        with way(compiled):
            hvd.barrier()
            before = counted()
            for call, wait in itertools.product(CALLS.values(), (True, False)):
                results(call, torch.ones(3), wait)
            after = counted()
        counts.append({key: value for key, value in after.items() if before.get(key) != value})
        counts[-1] = {
            key: tuple(b - a for a, b in zip(before.get(key, (0, 0)), value))
            if isinstance(value, tuple)
            else value - before.get(key, 0)
            for key, value in counts[-1].items()
        }
    assert counts[0] == counts[1] and len(counts[0]) > len(CALLS)


def test_sequence_numbers():
    before = world()._get_sequence_number_for_group()
    for compiled in (True, False):
        with way(compiled):
            dist.all_reduce(torch.ones(1))
            dist.all_reduce(torch.ones(2, 2).t())
            dist.barrier(async_op=True).wait()
            with pytest.raises(ValueError):
                dist.all_reduce(torch.ones(2).to_sparse())
    assert world()._get_sequence_number_for_group() == before + 6


# ---- all else gives the same as the long way


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("name", [name for name in CALLS if name != "barrier"])
@pytest.mark.parametrize("tensor", TENSORS)
def test_odd_tensors(tensor, name, wait):
    same(lambda: results(CALLS[name], TENSORS[tensor](), wait))


@pytest.mark.parametrize("wait", [True, False])
def test_odd_outputs(wait):
    n = hvd.size()
    for call in (
        lambda **k: into_tensor()(torch.zeros(n * 2 + 1), torch.ones(2), **k),
        lambda **k: into_tensor()(torch.zeros(n, 2), torch.ones(2), **k),
        lambda **k: into_tensor()(torch.zeros(n * 2, dtype=torch.int32), torch.ones(2), **k),
        lambda **k: into_tensor()(torch.zeros(2, n).t(), torch.ones(2), **k),
        lambda **k: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(n), **k),
        lambda **k: dist.reduce_scatter_tensor(torch.ones(1).expand(2), torch.ones(2 * n), **k),
        lambda **k: dist.all_to_all_single(torch.zeros(n, 2), torch.ones(2 * n), **k),
        lambda **k: dist.all_to_all_single(torch.zeros(2 * n), torch.ones(n, 2), **k),
        lambda **k: dist.all_to_all_single(torch.zeros(n), torch.ones(n), [1] * n, [1] * n, **k),
        lambda **k: dist.all_to_all_single(torch.zeros(n), torch.ones(n), [1] * (n + 1), None, **k),
        lambda **k: dist.all_to_all_single(torch.zeros(n + 1), torch.ones(n + 1), **k),
        lambda **k: dist.all_reduce(torch.ones(2), "sum", **k),
        lambda **k: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND, **k),
        lambda **k: dist.broadcast(torch.ones(2), n, **k),
        lambda **k: dist.broadcast(torch.ones(2), -1, **k),
    ):
        same(lambda call=call: call() if wait else call(async_op=True).wait() and None)


METHODS = [
    "allreduce", "broadcast", "_allgather_base", "_reduce_scatter_base", "alltoall_base", "barrier",
    "reduce_scatter_single", "all_gather_single", "all_to_all_single",
]  # fmt: skip
OPTIONS = [
    None, 0, 3, "options", dist.ReduceOp.SUM, dist.ReduceOp.MAX, datetime.timedelta(seconds=3),
    *(getattr(c10d, f"{name}Options") for name in ("Allreduce", "Broadcast", "Barrier", "ReduceScatter", "AllToAll")),
]  # fmt: skip


@pytest.mark.parametrize("seed", [os.environ.get("NATIVE_SEED", str(int(time.time() // 1000)))])
def test_any_arguments(seed):
    """A fuzzer: all ranks draw the same arguments of the group's methods. NATIVE_SEED repeats a run."""
    chance = random.Random(int(hvd.broadcast_object(seed, 0)))
    group = world()

    def draw():
        kind = chance.random()
        if kind < 0.6:
            make = TENSORS[chance.choice(["one", "matrix", "scalar", "strided", "empty", "torch.int64", "complex"])]
            return [make()] if chance.random() < 0.4 else make()
        option = chance.choice(OPTIONS)
        return option() if isinstance(option, type) else option

    for i in range(300):
        method = chance.choice(METHODS)
        state = chance.getstate()
        calls = []
        for _ in range(2):
            chance.setstate(state)
            args = [draw() for _ in range(chance.randrange(6))]
            named = {"opts": draw()} if chance.random() < 0.1 else {}
            call = getattr(group, method)
            calls.append(lambda call=call, args=args, named=named: ended(call(*args, **named)))
        outcomes = []
        for compiled, call in zip((True, False), calls):
            with way(compiled):
                outcomes.append(told(outcome(call)))
        assert outcomes[0] == outcomes[1], (seed, i, method)
    nothing_is_left()


def ended(work):
    return "; ".join(map(repr, work.result()))


def test_arguments_of_the_functions_themselves():
    chance, x, run = random.Random(5), torch.ones(2), native.run_in_group
    values = [
        None,
        0,
        1,
        -1,
        2**40,
        "1",
        b"torch.0.",
        b"n" * 300,
        x,
        torch.ones(2, 2).t(),
        1.0,
        True,
        dist.ReduceOp.SUM,
    ]
    for n in (0, 1, 10, 11, 12, 20):
        assert run(*[None] * n) is None
    for _ in range(2000):
        arguments = [chance.choice(values) for _ in range(11)]
        arguments[5] = chance.choice([12345, None, "0"])  # no process set: nothing begins
        try:
            assert run(*arguments) is None
        except (ValueError, HorovodInternalError):
            pass
    with pytest.raises(TypeError):
        native.setup_groups(1)
    nothing_is_left()


def test_a_refused_operation_keeps_nothing():
    x, y = torch.ones(3), torch.ones(3 * hvd.size())
    before = sys.getrefcount(x), sys.getrefcount(y)
    for i in range(2000):
        if i == 1:
            free = len(_base.pool.free)
        for source, target, kind in ((x, x, 0), (x, y, 1), (y, x, 7)):
            for wait_ms in (10, -1):
                with pytest.raises(ValueError, match="id 12345"):
                    native.run_in_group(kind, source, target, b"refused.", 0, 12345, 1, 1, 0, hvd.size(), wait_ms)
    del source, target
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before
    assert len(_base.pool.free) == free
    nothing_is_left()


@several()
@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("name", ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast"])
def test_failures_say_the_same(name, wait):
    x = torch.ones(2 + hvd.rank())
    short, long = by_both(lambda: results(CALLS[name], x.clone(), wait), outcome)
    assert "HorovodInternalError" in told(short) and "of group" not in told(short)
    assert told(short) == told(long)
    nothing_is_left()


@several()
@pytest.mark.parametrize("wait", [True, False])
def test_rows_that_differ(wait):
    """Ranks may go different ways: rank 0 names its splits."""

    def exchange():
        x, y = torch.arange(4.0), torch.zeros(4)
        splits = [[1, 3], [2, 2]] if hvd.rank() == 0 else []
        call = dist.all_to_all_single(y, x, *splits, async_op=not wait)
        return call if wait else call.wait() and None

    short, long = by_both(exchange, outcome)
    assert told(short) == told(long)
    assert (hvd.rank() == 0) == ("alltoall brought" in told(short))
