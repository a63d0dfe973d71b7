"""The compiled way to the engine, and the one through ctypes: both give the same results and errors."""

import gc
import itertools
import os
import random
import resource
import sys
import threading
import time
import warnings

import pytest
import torch
from both_ways import by_both, interrupted, interrupts_at_any_point
from definitions import DTYPES, hvd_size, of_rank, several, under_way

import horovod.torch as hvd
from horovod.common import _cells, _extension, _lib
from horovod.torch import _operation, _submission, mpi_ops
from horovod.torch.compression import wire_of

native = _submission.native
pytestmark = [
    pytest.mark.usefixtures("job"),
    pytest.mark.skipif(native is None, reason="this Python takes the way through ctypes alone"),
]


def outcome(call):
    """The result of a call in a form that can be compared, or the type and the text of its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as e:
            result = str((type(e), str(e)))
    if isinstance(result, (list, tuple)):
        result = [(x.dtype, tuple(x.shape), x.tolist()) for x in result]
    elif isinstance(result, torch.Tensor):
        result = result.dtype, tuple(result.shape), result.tolist()
    ours = [str(warning.message) for warning in caught if issubclass(warning.category, DeprecationWarning)]
    return result, ours


@pytest.fixture
def only_compiled(monkeypatch):
    """Fails where the Python code submits an operation, or fetches its result."""

    def refuse(*args, **kwargs):
        raise AssertionError("this went through ctypes")

    monkeypatch.setattr(_submission, "_describe", refuse)
    monkeypatch.setattr(_operation, "follow", refuse)


# ---- the plain case is compiled


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (1,) * 8])
def test_plain_tensors(dtype, shape, only_compiled):
    total = hvd.size() if dtype is not torch.bool else True
    for name in (None, "named"):
        x = torch.ones(shape, dtype=dtype)
        assert hvd.allreduce_(x, op=hvd.Sum, name=name) is x
        assert x.flatten().tolist() == [total] * x.numel()
        assert hvd.broadcast_(x, 0, name=name) is x


def test_asynchronous_calls(only_compiled):
    xs = [torch.full((n,), 1.0) for n in range(1, 40)]
    handles = [hvd.allreduce_async_(x, op=hvd.Sum) for x in xs]
    assert len(set(handles)) == len(xs) and set(handles) <= set(mpi_ops._handle_map)
    end = time.monotonic() + 60
    while not all(map(hvd.poll, handles)) and time.monotonic() < end:
        pass
    for handle, x in zip(handles, xs):
        assert hvd.synchronize(handle) is x
        assert x.tolist() == [hvd.size()] * len(x)
    assert mpi_ops._handle_map == {}


@pytest.mark.parametrize("name", [None, "group"])
def test_groups(name, only_compiled):
    xs = [torch.full((n,), 1.0) for n in range(1, 200)]
    for wait in (hvd.grouped_allreduce_, lambda *a, **k: hvd.synchronize(hvd.grouped_allreduce_async_(*a, **k))):
        results = wait(xs, op=hvd.Average, name=name)
        assert [id(result) for result in results] == [id(x) for x in xs]
        assert all(x.tolist() == [1] * len(x) for x in xs)
    ones = [torch.ones(3, dtype=dtype) for dtype in (torch.float32, torch.int32, torch.float32)]
    results = hvd.grouped_allreduce(ones, op=hvd.Sum, name=name)
    assert [(x.dtype, x[0].item()) for x in results] == [(x.dtype, hvd.size()) for x in ones]
    assert mpi_ops._handle_map == {}


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_whose_size_only_the_engine_knows(dtype, only_compiled):
    n, r = hvd.size(), hvd.rank()
    mine = torch.full((r + 1, 2), r % 2, dtype=dtype)
    want = [[rank % 2] * 2 for rank in range(n) for _ in range(rank + 1)]
    to_each = torch.full((2 * n, 3), r % 2, dtype=dtype)
    for name in (None, "made"):
        for gathered in (hvd.allgather(mine, name=name), hvd.synchronize(hvd.allgather_async(mine, name=name))):
            assert gathered.dtype is dtype and gathered.tolist() == want
        for rows, received in (
            hvd.alltoall(to_each, [2] * n, name=name),
            hvd.synchronize(hvd.alltoall_async(to_each, name=name)),
        ):
            assert rows.dtype is dtype and rows.tolist() == [[rank % 2] * 3 for rank in range(n) for _ in range(2)]
            assert received.dtype is torch.int32 and received.tolist() == [2] * n
        if dtype is not torch.bool:
            for scattered in (
                hvd.reducescatter(to_each, op=hvd.Sum, name=name),
                hvd.synchronize(hvd.reducescatter_async(to_each, op=hvd.Sum, name=name)),
            ):
                assert scattered.tolist() == [[n // 2] * 3] * 2
    assert mpi_ops._handle_map == {}


class EndsMeanwhile:
    """The extension. The first call of take comes before the operation's end, and returns after it."""

    def __init__(self):
        self.calls = 0

    def __getattr__(self, function):
        return getattr(native, function)

    def take(self, handle, waits):
        self.calls += 1
        if self.calls > 1:
            return native.take(handle, waits)
        while not hvd.poll(handle):
            pass
        return None


@pytest.mark.parametrize("call", [hvd.allreduce_async_, hvd.allgather_async, hvd.alltoall_async])
def test_operations_that_end_while_synchronize_begins(call, only_compiled, monkeypatch):
    monkeypatch.setattr(_submission, "native", EndsMeanwhile())
    x = torch.full((hvd.size(),), 2.0)
    assert hvd.synchronize(call(x)) is not None
    assert _submission.native.calls == 2 and mpi_ops._handle_map == {}


def test_large_results():
    x = torch.full((1 << 16,), float(hvd.rank()))
    for call in (hvd.allgather, lambda x: hvd.synchronize(hvd.allgather_async(x))):
        gathered = call(x)
        assert gathered.shape == (hvd.size() << 16,) and gathered[-1] == hvd.size() - 1
    rows, received = hvd.synchronize(hvd.alltoall_async(x))
    assert rows[0] == 0 and rows[-1] == hvd.size() - 1 and received.tolist() == [len(x) // hvd.size()] * hvd.size()


def test_parameters_and_what_needs_gradients(only_compiled):
    parameter = torch.nn.Parameter(torch.ones(2))
    assert hvd.broadcast_(parameter, 0) is parameter
    assert hvd.allreduce_(torch.ones(1, requires_grad=True), op=hvd.Sum).item() == hvd.size()


COMPRESSIONS = {name: getattr(hvd.Compression, name) for name in ("fp16", "bf16", "int8")}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_tensors(compression, only_compiled):
    n, x = hvd.size(), torch.arange(8.0)
    for name in ("compressed", "as it is"):
        arguments = {"op": hvd.Sum, "name": f"{name} {compression}"}
        if name == "compressed":
            arguments["compression"] = COMPRESSIONS[compression]
        assert hvd.allreduce(x, **arguments).tolist() == (n * x).tolist()
        for result in hvd.grouped_allreduce([x, x[:1]], **arguments):
            assert result.tolist() == (n * x[: len(result)]).tolist()
    wire = wire_of(COMPRESSIONS[compression], x, hvd.Sum)
    handle = _submission.submit(
        "allreduce", x, x, f"hook {compression}", hvd.global_process_set, False, hvd.Sum, wire=wire
    )  # fmt: skip
    assert hvd.synchronize(handle) is x and wire != _lib.WIRE_AS_IT_IS


@several()
def test_ranks_that_compress_in_other_ways():
    """The compression of a call is that of no other call."""

    def call(name, plain=hvd.Compression.none):
        compression = hvd.Compression.fp16 if hvd.rank() == 0 else plain
        return hvd.allreduce(torch.ones(3), op=hvd.Sum, compression=compression, name=name)

    compiled, through_ctypes = by_both(lambda: call("ways"), outcome)
    assert compiled == through_ctypes and "compression" in compiled[0]
    for _ in range(3):
        call("one way", hvd.Compression.fp16)
        assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="no way").tolist() == [hvd.size()] * 3


# ---- all else gives the same as through ctypes


class Wrapped(torch.Tensor):
    pass


class Name(str):
    pass


def negated():
    return torch.tensor([1 + 2j]).conj().imag[:1]


TENSORS = {
    "one": lambda: torch.ones(1),
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: torch.empty(0),
    "empty rows": lambda: torch.empty(2, 0, 3),
    "matrix": lambda: torch.arange(6.0).reshape(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).t(),
    "strided": lambda: torch.arange(6.0)[::2],
    "expanded": lambda: torch.ones(1).expand(4),
    "row of a transposed": lambda: torch.arange(6.0).reshape(6, 1).t(),
    "slice": lambda: torch.arange(6.0)[2:5],
    "complex": lambda: torch.ones(2, dtype=torch.complex64),
    "negated": negated,
    "subclass": lambda: torch.ones(2).as_subclass(Wrapped),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)).detach(),
    "meta": lambda: torch.ones(2, device="meta"),
    "one of a strided": lambda: torch.arange(6.0)[::2][1:2],
    "one on meta": lambda: torch.ones(1, device="meta"),
    "sparse one": lambda: torch.ones(1).to_sparse(),
    "mkldnn one": lambda: torch.ones(1).to_mkldnn(),
    "zero without memory": lambda: torch._efficientzerotensor((1,)),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    "mkldnn": lambda: torch.ones(2, 2).to_mkldnn(),
    "zeros without memory": lambda: torch._efficientzerotensor((2,)),
    "nine dimensions": lambda: torch.ones((1,) * 9),
    "nan": lambda: torch.full((2,), float("inf")),
    "list": lambda: [1.0],
    "None": lambda: None,
    "number": lambda: 1.0,
    "storage freed": lambda: freed(torch.ones(3)),
    **{f"{dtype}": lambda dtype=dtype: of_rank(0, (3,), dtype) for dtype in DTYPES},
    **{
        f"torch.{name}": lambda name=name: torch.zeros(2, dtype=getattr(torch, name))
        for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2")
        if hasattr(torch, name)
    },
}


def freed(tensor):
    tensor._storage().resize_(0) if not hasattr(tensor, "untyped_storage") else tensor.untyped_storage().resize_(0)
    return tensor


NAMES = {
    "a name": "plain",
    "long": "n" * 400,
    "just fits": "n" * (255 - len("allreduce.")),
    "just too long": "n" * (256 - len("allreduce.")),
    "umlaut": "ä",
    "surrogate": "\ud800",
    "nul": "a\0b",
    "control": "a\nb",
    "subclass": Name("derived"),
    "bytes": b"bytes",
    "number": 3,
    "empty": "",
}
OPS = [None, hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product, hvd.Adasum, 6, -1, 2**40, True, "Sum", 1.0]
FACTORS = [1.0, 0.5, 2, True, 2**2000, "1", None, float("nan"), 0.0, float("-inf")]
UNKNOWN = hvd.ProcessSet([0])
UNKNOWN.process_set_id = 12345
SETS = [UNKNOWN, hvd.global_process_set, 0, None, hvd.ProcessSet([0]), type("Set", (), {"process_set_id": 12345})()]
ROOTS = [0, True, -1, 10**6, 2**40, 1.0, None, "0"]


def allreduce_(tensor, **arguments):
    return lambda: hvd.allreduce_(tensor(), **{"op": hvd.Sum, "name": "odd", **arguments})


def allreduce_async_(tensor, **arguments):
    return lambda: hvd.synchronize(hvd.allreduce_async_(tensor(), **{"op": hvd.Sum, "name": "odd", **arguments}))


def allreduce(tensor, **arguments):
    return lambda: hvd.allreduce(tensor(), **{"op": hvd.Sum, "name": "odd", **arguments})


def same(call):
    compiled, through_ctypes = by_both(call, outcome)
    assert repr(compiled) == repr(through_ctypes)  # nan is like nan
    assert mpi_ops._handle_map == {}


def grouped_allreduce_(tensor, **arguments):
    arguments = {"op": hvd.Sum, "name": "odd", **arguments}
    return lambda: hvd.grouped_allreduce_([torch.ones(2), tensor(), torch.ones(1)], **arguments)


def grouped_allreduce(tensor, **arguments):
    arguments = {"op": hvd.Sum, "name": "odd", **arguments}
    return lambda: hvd.grouped_allreduce([tensor(), torch.ones(3)], **arguments)


def allgather(tensor, **arguments):
    return lambda: hvd.allgather(tensor(), **{"name": "odd", **some(arguments)})


def allgather_async(tensor, **arguments):
    return lambda: hvd.synchronize(hvd.allgather_async(tensor(), **{"name": "odd", **some(arguments)}))


def alltoall(tensor, **arguments):
    return lambda: hvd.alltoall(tensor(), **{"name": "odd", **some(arguments, "splits")})


def alltoall_async(tensor, **arguments):
    return lambda: hvd.synchronize(hvd.alltoall_async(tensor(), **{"name": "odd", **some(arguments, "splits")}))


def broadcast_(tensor, **arguments):
    return lambda: hvd.broadcast_(tensor(), **{"root_rank": 0, "name": "odd", **some(arguments, "root_rank")})


def reducescatter(tensor, **arguments):
    return lambda: hvd.reducescatter(tensor(), **{"op": hvd.Sum, "name": "odd", **without_average(arguments)})


def some(arguments, *more):
    return {name: value for name, value in arguments.items() if name in ("name", "process_set", *more)}


def without_average(arguments):
    return {name: value for name, value in arguments.items() if name != "average"}


MADE = [allgather, allgather_async, alltoall, alltoall_async]
CALLS = [allreduce_, allreduce_async_, allreduce, grouped_allreduce_, grouped_allreduce, *MADE, reducescatter]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("tensor", TENSORS)
def test_odd_tensors(tensor, call):
    same(call(TENSORS[tensor]))


@pytest.mark.parametrize("tensor", TENSORS)
def test_odd_tensors_to_broadcast(tensor):
    same(lambda: hvd.broadcast_(TENSORS[tensor](), 0, name="odd"))


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments(call):
    for argument, values in {
        "name": NAMES.values(), "op": OPS, "prescale_factor": FACTORS, "postscale_factor": FACTORS, "process_set": SETS,
        "average": [None, True, False, "x", [], 1, 0.0],
    }.items():  # fmt: skip
        for value in values:
            same(call(lambda: torch.ones(2), **{argument: value}))
    same(call(lambda: torch.ones(2), average=True, op=None))


@pytest.mark.parametrize("call", [alltoall, alltoall_async])
def test_odd_splits(call):
    n = hvd.size()
    for splits in (
        [1] * n, [0] * n, [0] * (n - 1) + [4], [1] * (n + 1), [], [-1] * n, [2**40] * n, [1.0] * n, [True] * n,
        [None] * n, (1,) * n, range(n), "1" * n, 1, torch.ones(n, dtype=torch.int32), torch.ones(n), [1] * 300,
    ):  # fmt: skip
        same(call(lambda: torch.arange(4.0), splits=splits))


@pytest.mark.parametrize("call", [allreduce, grouped_allreduce])
def test_odd_compressions(call):
    for compression in [*COMPRESSIONS.values(), hvd.Compression.none, hvd.Compression, None, 3, "fp16", object()]:
        for tensor in (lambda: torch.ones(2), lambda: torch.ones(2, dtype=torch.int32), lambda: torch.ones(0)):
            same(call(tensor, compression=compression))


def test_odd_roots():
    for root in ROOTS:
        same(lambda root=root: hvd.broadcast_(torch.ones(2), root, name="odd"))


SPLITS = {"splits": [None, [], [1], [2], [1, 1], [2**40], [-1], (1,), "1", 1, [1] * 300]}
COMPRESSORS = {"compression": [*COMPRESSIONS.values(), hvd.Compression.none, None, 3]}
OF_CALLS = {
    broadcast_: {"root_rank": ROOTS}, alltoall: SPLITS, alltoall_async: SPLITS, allreduce: COMPRESSORS,
    grouped_allreduce: COMPRESSORS,
}  # fmt: skip


@pytest.mark.parametrize("seed", [os.environ.get("NATIVE_SEED", str(int(time.time() // 1000)))])
def test_any_arguments(seed):
    """A fuzzer: all ranks draw the same arguments. NATIVE_SEED repeats a run."""
    seed = int(hvd.broadcast_object(seed, 0))
    chance = random.Random(seed)
    for _ in range(400):
        call = chance.choice([*CALLS, broadcast_])
        tensor = TENSORS[chance.choice(list(TENSORS))]
        arguments = {
            name: chance.choice(list(values))
            for name, values in {
                "name": NAMES.values(), "op": OPS, "prescale_factor": FACTORS, "postscale_factor": FACTORS,
                "process_set": SETS, **OF_CALLS.get(call, {}),
            }.items()
            if chance.random() < 0.3
        }  # fmt: skip
        compiled, through_ctypes = by_both(call(tensor, **arguments), outcome)
        assert repr(compiled) == repr(through_ctypes), (seed, arguments)
    assert mpi_ops._handle_map == {}


def test_a_refused_operation_keeps_nothing():
    x = torch.ones(3)
    before, free = sys.getrefcount(x), None
    for start in (hvd.allreduce_, hvd.allreduce_async_, lambda x, **k: hvd.grouped_allreduce_async_([x] * 3, **k)):
        for _ in range(2000):
            with pytest.raises(ValueError, match="id 12345"):
                start(x, op=hvd.Sum, name="refused", process_set=UNKNOWN)
        free = len(_submission._pool.free) if free is None else free
    gc.collect()
    assert (sys.getrefcount(x), len(_submission._pool.free)) == (before, free)
    assert mpi_ops._handle_map == {}


def of_rank_size():
    return torch.ones(hvd.size(), 2 + hvd.rank())


@several()
@pytest.mark.parametrize("call", CALLS)
def test_failures_name_the_tensor(call):
    compiled, through_ctypes = by_both(call(of_rank_size, name="mismatched"), outcome)
    assert compiled == through_ctypes and "mismatched" in compiled[0], compiled


def test_arguments_of_the_functions_themselves():
    for function in (native.run, native.submit):
        assert function() is None and function(*range(20)) is None
        assert function(*[None] * 10) is None and function(*[None] * 11) is None
    assert native.run_made() is None and native.run_made(*[None] * 5) is None
    assert native.submit_made() is None and native.submit_made(*[None] * 6) is None
    one = torch.ones(1)
    for odd in (None, "reduce", "allreduce", "barrier", "unknown", 3, b"allgather"):
        assert native.run_made(odd, one, None, hvd.global_process_set, ()) is None
    assert native.submit_group() is None and native.submit_group(*[None] * 11) is None
    for handle in (None, -1, 10**30, "1", 1.0, True):
        assert native.take(handle, False) is None and native.take(handle) is None
    with pytest.raises(TypeError):
        native.setup(1)


# ---- ends that are not plain


@several()
@pytest.mark.parametrize("after", [0.02, 0.3])
def test_interrupt_of_a_blocking_call(after):
    """The operation goes on, and its handle stays with its tensor, as through ctypes."""
    x = torch.ones(10)
    if hvd.rank() == 0:
        interrupted(hvd, lambda: hvd.allreduce_(x, name="interrupted", op=hvd.Sum), after)
        (operation,) = mpi_ops._handle_map.values()
        assert operation.keeps[0] is x and operation.name == b"allreduce.interrupted"
    hvd.barrier()
    if hvd.rank() != 0:
        assert hvd.allreduce_(x, name="interrupted", op=hvd.Sum).tolist() == [hvd.size()] * 10
    for handle in list(mpi_ops._handle_map):
        assert hvd.synchronize(handle).tolist() == [hvd.size()] * 10
    assert mpi_ops._handle_map == {}


@several()
@pytest.mark.parametrize("late", [0.05, 0.3])
def test_memory_that_is_replaced_during_a_blocking_call(late):
    """The engine has the memory of the time of the call."""
    x, done = torch.ones(100_000), threading.Event()

    def replace():
        while not under_way() and not done.is_set():
            time.sleep(0.001)
        x.data = torch.zeros(3)

    if hvd.rank() != 0:
        time.sleep(late)
        assert hvd.allreduce_(x, op=hvd.Sum, name="replaced")[0] == hvd.size()
        return
    thread = threading.Thread(target=replace)
    thread.start()
    assert hvd.allreduce_(x, op=hvd.Sum, name="replaced") is x
    done.set()
    thread.join()


def test_threads_take_each_result_once():
    xs = [torch.ones(1) for _ in range(400)]
    handles = [hvd.allreduce_async_(x, op=hvd.Sum, name=f"threads {i}") for i, x in enumerate(xs)]
    taken = [[] for _ in range(4)]

    def take(mine):
        for handle in handles:
            result = hvd.synchronize(handle)
            if result is not None:
                mine.append(result)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(id(x) for mine in taken for x in mine) == sorted(map(id, xs))
    assert mpi_ops._handle_map == {}


@pytest.mark.skipif(hvd_size() > 1, reason="ranks would start different operations")
def test_interrupts_at_any_point():
    """What has been started can be waited for, and no cell is lost."""
    count = itertools.count()
    calls = [
        lambda: hvd.allreduce_(torch.ones(2)),
        lambda: hvd.synchronize(hvd.allreduce_async_(torch.ones(2))),
        lambda: hvd.grouped_allreduce_([torch.ones(1), torch.ones(2)]),
        lambda: hvd.broadcast_(torch.ones(3), 0, name=f"interrupted {next(count)}"),
        lambda: hvd.allgather(torch.ones(2)),
        lambda: hvd.synchronize(hvd.alltoall_async(torch.ones(2), [2])),
        lambda: hvd.alltoall(torch.ones(2)),
        lambda: hvd.reducescatter(torch.ones(2), op=hvd.Sum),
        lambda: hvd.allreduce(torch.ones(2), compression=hvd.Compression.fp16),
        lambda: hvd.synchronize(hvd.grouped_allreduce_async([torch.ones(1), torch.ones(2)])),
    ]

    def some(chance):
        for _ in range(100):
            chance.choice(calls)()

    assert interrupts_at_any_point(some, 1e-4) > 50
    for handle in list(mpi_ops._handle_map):
        hvd.synchronize(handle)
    free = _submission._pool.free
    assert mpi_ops._handle_map == {}
    assert len(set(map(id, free))) == len(free) and all(operation.keeps is None for operation in free)


class InterruptingMode(torch.overrides.TorchFunctionMode):
    """Interrupts where a tensor for a result is made."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.new_empty:
            raise KeyboardInterrupt
        return function(*args, **(kwargs or {}))


class OtherMode(torch.overrides.TorchFunctionMode):
    """Makes other tensors for results."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return self.other if function is torch.Tensor.new_empty else function(*args, **(kwargs or {}))


@pytest.mark.parametrize("other", ["meta", "small", "number", "type"])
def test_a_mode_that_makes_other_tensors(other):
    others = {
        "meta": torch.empty(2 * hvd.size(), device="meta"), "small": torch.empty(1), "number": 1,
        "type": torch.empty(2 * hvd.size(), dtype=torch.uint8),
    }  # fmt: skip
    with OtherMode(others[other]):
        assert hvd.allgather(torch.ones(2)).tolist() == [1.0] * 2 * hvd.size()
        rows, received = hvd.alltoall(torch.ones(hvd.size()), [1] * hvd.size())
        assert rows.tolist() == [1.0] * hvd.size() and received.tolist() == [1] * hvd.size()


def test_interrupts_while_a_result_is_made():
    x, free = torch.ones(2), len(_submission._pool.free)
    with InterruptingMode(), pytest.raises(KeyboardInterrupt):
        hvd.allgather(x)
    handle = hvd.allgather_async(x)
    while not hvd.poll(handle):
        pass
    with InterruptingMode(), pytest.raises(KeyboardInterrupt):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle).tolist() == [1.0] * 2 * hvd.size()
    assert mpi_ops._handle_map == {} and len(_submission._pool.free) == free


# ---- nothing leaks


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.longest(300)
def test_nothing_leaks():
    """A million calls on one rank, fewer on more and under ASan."""
    x, y = torch.ones(2), torch.ones(2)
    name = "leak" * 5
    slow = hvd.size() > 1 or "libasan" in os.environ.get("LD_PRELOAD", "")
    calls = 20_000 if slow else 1_000_000

    def some(n):
        for _ in range(n // 4):
            hvd.allreduce_(x, name=name)
            hvd.allreduce_(y)
            hvd.synchronize(hvd.allreduce_async_(y, name=name))
            hvd.broadcast_(y, 0)
        for _ in range(n // 20):
            hvd.allgather(x, name=name)
            hvd.synchronize(hvd.alltoall_async(y, name=name))
        for _ in range(n // 100):
            hvd.grouped_allreduce_([x, y], name=name)

    some(20_000)
    gc.collect()
    counted = [x, y, name, None, _submission._pool.free[-1], hvd.global_process_set]
    before, memory = [sys.getrefcount(one) for one in counted], resident()
    some(calls)
    gc.collect()
    after = [sys.getrefcount(one) for one in counted]
    assert all(abs(a - b) < 100 for a, b in zip(after, before)), (before, after)
    assert after[:3] == before[:3]
    assert resident() - memory < 16 << 20


# ---- where there is none


def test_where_it_cannot_be(monkeypatch):
    assert _extension.why_not() is None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
        assert "3.10" in _extension.why_not() and _extension.find() is None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 13, 0, "final", 0))
        patch.setattr(_extension.sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED")
        assert "GIL" in _extension.why_not() and _extension.find() is None
    with monkeypatch.context() as patch:
        patch.setattr(sys, "getobjects", lambda limit: [], raising=False)
        assert "trace references" in _extension.why_not() and _extension.find() is None
    with monkeypatch.context() as patch:
        patch.setattr(_extension, "FILE_NAME", "libgorovod_missing.so")
        assert _extension.find() is None
    with monkeypatch.context() as patch:
        patch.setattr(_extension, "FILE_NAME", "libgorovod.so")
        with pytest.raises(ImportError, match="libgorovod.so.*PyInit__calls.*GOROVOD_PURE_PYTHON=1"):
            _extension.find()
    with monkeypatch.context() as patch:
        patch.setenv("GOROVOD_PURE_PYTHON", "1")
        assert _extension.find() is None
    with monkeypatch.context() as patch:
        patch.setattr(_cells, "LAYOUT", (*_cells.LAYOUT[:-1], 8))
        with pytest.raises(ImportError, match="another version.*GOROVOD_PURE_PYTHON=1"):
            _extension.find()
    assert hvd.allreduce_(torch.ones(1), op=hvd.Sum).item() == hvd.size()
