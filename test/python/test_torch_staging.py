"""Tensors on a pretended GPU; test_torch_gpu.py has a real one.

The pretended GPU does the work of its streams only when a test calls run, and its memory is ordinary memory. So a copy
that is used too early, or in a wrong order, always gives wrong numbers here.
"""

import collections
import ctypes

import pytest
import torch
from torch.overrides import TorchFunctionMode

import horovod.torch as hvd
from horovod.torch import _staging

pytestmark = pytest.mark.usefixtures("job")

GARBAGE = 77.0


def mine():
    return torch.arange(6.0).reshape(2, 3) + hvd.rank()


def total():
    return sum(torch.arange(6.0).reshape(2, 3) + rank for rank in range(hvd.size()))


# ---- the pretended GPU


class Event:
    """The memory of an event is text, and C's atoi is the query that reads the answer from it."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.text = ctypes.create_string_buffer(b"600", 4)
        self.cuda_event = ctypes.addressof(self.text)
        gpu.events.append(self)  # real ones are kept by CUDA, too

    def complete(self):
        self.text.value = b"0"

    def synchronize(self):
        self.gpu.run()


class Stream:
    def __init__(self, gpu):
        self.gpu = gpu
        self.work = collections.deque()  # a pair of what to do and of the event to wait for; either may be missing

    def record_event(self):
        event = Event(self.gpu)
        self.work.append((event.complete, None))
        return event

    def wait_stream(self, other):
        self.work.append((None, other.record_event()))

    def run(self):
        """Do what is not held up by another stream. Returns whether something was done."""
        done = False
        while self.work and (self.work[0][1] is None or self.work[0][1].text.value == b"0"):
            do = self.work.popleft()[0]
            if do is not None:
                self.gpu.working = True
                do()
                self.gpu.working = False
            done = True
        return done


class PretendedGpu(TorchFunctionMode):
    """In this context tensors can be on device "cuda". It also stands in for what staging uses of torch.cuda."""

    def __init__(self):
        super().__init__()
        self.tensors = {}
        self.events = []
        self.working = False  # it does queued work, whose operations are not queued again
        self.streams = []
        self.recorded = []  # which tensors were recorded for which stream
        self.current = self.caller = self.Stream(None)
        self.capturing = False

    # The part of torch.cuda that staging uses.

    def Stream(self, device):
        self.streams.append(Stream(self))
        return self.streams[-1]

    def current_stream(self, device):
        return self.current

    def is_current_stream_capturing(self):
        return self.capturing

    def stream(self, stream):
        gpu = self

        class Current:
            def __enter__(self):
                self.before, gpu.current = gpu.current, stream

            def __exit__(self, *_):
                gpu.current = self.before

        return Current()

    # For tests.

    def run(self, *streams):
        while sum(stream.run() for stream in streams or self.streams) > 0:
            pass

    def put(self, tensor):
        tensor = tensor.clone()
        self.tensors[id(tensor)] = tensor
        return tensor

    def record(self, tensor, stream):
        assert self.holds(tensor)
        self.recorded.append((tensor.data_ptr(), stream))

    def holds(self, tensor):
        return id(tensor) in self.tensors

    # What PyTorch calls.

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if self.working:
            return func(*args, **kwargs)
        if func is torch.empty:
            device = kwargs.pop("device", None)
            kwargs.pop("pin_memory", None)
            made = func(*args, **kwargs).fill_(GARBAGE)
            on_device = device is not None and torch.device(device).type == "cuda"
            return self.put(made) if on_device else made
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if tensor is None or not (self.holds(tensor) or any(map(self.holds, self._tensors(args)))):
            return func(*args, **kwargs)
        if func == torch.Tensor.is_cuda.__get__:
            return self.holds(tensor)
        if func == torch.Tensor.is_cpu.__get__:
            return not self.holds(tensor)
        if func == torch.Tensor.device.__get__ and self.holds(tensor):
            return torch.device("cuda", 0)
        if func is torch.Tensor.detach or func is torch.Tensor.resolve_neg:
            result = func(*args)
            self.tensors[id(result)] = result
            return result
        if func is torch.Tensor.copy_:
            source = args[1]
            assert kwargs.get("non_blocking"), "a copy that blocks the caller"
            self.current.work.append((lambda: torch.Tensor.copy_(tensor, source), None))
            return tensor
        return func(*args, **kwargs)

    @staticmethod
    def _tensors(args):
        return (a for a in args if isinstance(a, torch.Tensor))


@pytest.fixture
def gpu(monkeypatch, by_ctypes):
    atoi = ctypes.cast(ctypes.CDLL(None).atoi, ctypes.c_void_p).value
    pretended = PretendedGpu()
    _staging._stream_of.cache_clear()
    monkeypatch.setattr(_staging, "_cuda", pretended)
    monkeypatch.setattr(_staging, "_event_query", lambda: (atoi, 600))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: pretended.record(tensor, stream))
    with pretended:
        yield pretended
    _staging._stream_of.cache_clear()


def test_the_engine_waits_for_the_copy_and_the_caller_does_not(gpu):
    tensor = gpu.put(torch.full((2, 3), GARBAGE))
    gpu.caller.work.append((lambda: tensor.copy_(mine()), None))  # the kernel that makes its values
    handle = hvd.allreduce_async(tensor, op=hvd.Sum)
    other = hvd.allreduce(torch.ones(1), op=hvd.Sum)  # one that is ready does not wait for one that is not
    assert other.item() == hvd.size()
    assert not hvd.poll(handle)
    gpu.run()
    result = hvd.synchronize(handle)
    assert gpu.holds(result) and result is not tensor
    assert result[0, 0].item() == GARBAGE  # synchronize has not waited for the way back
    gpu.run()
    assert result.tolist() == total().tolist()
    assert tensor.tolist() == mine().tolist()


def test_results_come_back_on_the_stream_that_asks_for_them(gpu):
    tensor = gpu.put(mine())
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum)
    gpu.run()
    asking = gpu.Stream(None)
    seen = []
    with gpu.stream(asking):
        assert hvd.synchronize(handle) is tensor
        asking.work.append((lambda: seen.append(tensor.tolist()), None))
    gpu.run(asking)
    assert seen == [total().tolist()]
    streams = [stream for address, stream in gpu.recorded if address == tensor.data_ptr()]
    assert asking in streams  # the allocator of its memory knows
    assert any(stream not in (asking, gpu.caller) for stream in streams)  # and of the stream that copies to the host


@pytest.mark.parametrize("rows", [2, 20_000])
def test_outputs_of_the_engines_own(gpu, rows):
    tensor = gpu.put(torch.full((rows, 3), float(hvd.rank())))
    handle = hvd.allgather_async(tensor)
    gpu.run()
    result = hvd.synchronize(handle)
    assert gpu.holds(result) and result.shape == (rows * hvd.size(), 3)
    gpu.run()
    assert result[:, 0].tolist() == [float(rank) for rank in range(hvd.size()) for _ in range(rows)]


def test_groups_wait_for_the_last_copy(gpu):
    first, second = gpu.put(mine()), gpu.put(torch.full((2, 3), GARBAGE))
    handles = [hvd.grouped_allreduce_async_([first, second], op=hvd.Sum)]
    assert not hvd.poll(handles[0])
    gpu.run()
    results = hvd.synchronize(handles[0])
    gpu.run()
    assert results[0].tolist() == total().tolist()
    assert results[1].tolist() == torch.full((2, 3), GARBAGE * hvd.size()).tolist()


def test_without_a_query_the_submission_waits(gpu, monkeypatch):
    monkeypatch.setattr(_staging, "_event_query", lambda: None)
    result = hvd.allreduce(gpu.put(mine()), op=hvd.Sum)
    gpu.run()
    assert result.tolist() == total().tolist()


def test_groups_on_several_devices_are_refused(gpu):
    with pytest.raises(ValueError, match="same device: cpu, cuda:0"):
        hvd.grouped_allreduce([gpu.put(mine()), mine()])
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_graphs_are_refused(gpu):
    gpu.capturing = True
    with pytest.raises(ValueError, match="captured into a CUDA graph"):
        hvd.allreduce(gpu.put(mine()))
    gpu.capturing = False
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_host_memory_does_not_meet_a_gpu(gpu):
    tensor = gpu.put(mine()) if hvd.rank() == 0 else mine()
    if hvd.size() == 1:
        return
    handle = hvd.allreduce_async(tensor, name="mixed")
    gpu.run()
    with pytest.raises(hvd.HorovodInternalError, match="CPU/GPU device selection"):
        hvd.synchronize(handle)


def test_the_cell_of_a_waiting_operation_is_used_again(gpu):
    # An event that is left in a cell would hold up the next operation for ever, or be read after it is gone.
    for _ in range(3):
        handle = hvd.allreduce_async(gpu.put(mine()), op=hvd.Sum)
        gpu.run()
        hvd.synchronize(handle)
        gpu.events.clear()
        check = hvd.allreduce(mine(), op=hvd.Sum)
        assert check.tolist() == total().tolist()


@pytest.mark.parametrize("ended", [False, True])
def test_operations_in_place_do_not_share_memory(gpu, ended):
    """The second one is refused while the result of the first one has still to come back."""
    tensor = gpu.put(mine())
    first = hvd.allreduce_async_(tensor, op=hvd.Sum, name="first")
    if ended:
        gpu.run()
        while not hvd.poll(first):
            pass
    for second in (hvd.allreduce_async_(tensor, op=hvd.Sum), hvd.allgather_async(tensor[1:])):
        gpu.run()
        with pytest.raises(ValueError, match='memory that Allreduce of tensor "allreduce.first", .* writes'):
            hvd.synchronize(second)
    hvd.synchronize(first)
    gpu.run()
    assert tensor.tolist() == total().tolist()
    again = hvd.allreduce_async_(tensor, op=hvd.Sum)  # now its memory is free
    gpu.run()
    hvd.synchronize(again)
    gpu.run()
    assert tensor.tolist() == (total() * hvd.size()).tolist()


def test_equal_operations_share_memory(gpu):
    """As weights that a model has under two names, and gradients that two optimizers average."""
    tensor = gpu.put(mine())
    for start in (
        lambda: hvd.broadcast_async_(tensor, 0),
        lambda: hvd.allreduce_async_(tensor, op=hvd.Average),
    ):
        handles = [start(), start()]
        gpu.run()
        for handle in handles:
            assert hvd.synchronize(handle) is tensor
        gpu.run()
        assert tensor.tolist() == torch.arange(6.0).reshape(2, 3).tolist()
