"""PyTorch's tensors on the stand-in for CUDA's driver and NCCL (test/gpu/standin), as far as the front end uses them.

``build`` compiles the stand-in. In a process that finds it by ``LD_LIBRARY_PATH`` a :class:`StandInGpu` lets tensors be
on device "cuda": their memory is the stand-in's, which the CPU cannot touch, so nothing can be computed with them.
Kernels are copies that take a while. The caching allocator works as PyTorch's does: it gives out the memory of a
dropped tensor again at once on the stream that it was allocated on. If ``record_stream`` has named other streams, it
waits until those have used it.

The stand-in ends the process with a report if two accesses to memory are not ordered by streams and events.
"""

import ctypes
import os
import subprocess
import weakref
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

SOURCES = Path(__file__).resolve().parents[1] / "gpu" / "standin"
LIBRARIES = {
    "libcuda.so.1": ["report.c", "stream.c", "memory.c", "copy.c", "driver.c"],
    "libnccl.so.2": ["comm.c", "group.c", "round.c", "reduce.c"],
}
COPY = 1  # a kind of kernel
KERNEL_US = 2000
BLOCK = 512
STORAGE_OF = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage


def build(folder):
    """Compile the stand-in into a folder."""
    for name, files in LIBRARIES.items():
        needs = [] if name == "libcuda.so.1" else [folder / "libcuda.so.1", "-lm"]
        subprocess.run(
            [os.environ.get("CC", "cc"), "-std=gnu2x", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", "-pthread",
             f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", "-o", folder / name, *(SOURCES / f for f in files), *needs],
            check=True,
        )  # fmt: skip


class Event:
    def __init__(self, gpu, stream):
        self.gpu = gpu
        handle = ctypes.c_void_p()
        gpu.call("cuEventCreate", ctypes.byref(handle), 2)
        self.cuda_event = handle.value
        gpu.call("cuEventRecord", self.cuda_event, stream)
        weakref.finalize(self, gpu.call, "cuEventDestroy_v2", self.cuda_event).atexit = False

    def query(self):
        return self.gpu.driver.cuEventQuery(ctypes.c_void_p(self.cuda_event)) == 0


class Stream:
    def __init__(self, gpu, _device=None):
        self.gpu = gpu
        self.device = None
        handle = ctypes.c_void_p()
        gpu.call("cuStreamCreate", ctypes.byref(handle), 1)
        self.cuda_stream = handle.value

    def record_event(self):
        return Event(self.gpu, self.cuda_stream)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def wait_event(self, event):
        self.gpu.call("cuStreamWaitEvent", self.cuda_stream, event.cuda_event, 0)

    def synchronize(self):
        self.gpu.call("cuStreamSynchronize", self.cuda_stream)


class Block:
    """Device memory. ``stream`` allocated it; ``users`` are the streams that record_stream has named."""

    def __init__(self, address, size, stream):
        self.address, self.size, self.stream, self.users = address, size, stream, set()


class StandInGpu(TorchFunctionMode):
    """In this context tensors can be on device "cuda"; it stands in for torch.cuda, too."""

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context.value)
        self.current = self.caller = Stream(self)
        self.captures = 0  # under way
        self.blocks = {}  # in use, by address
        self.free = []  # pairs of a block and of the events to wait for before its memory is used again
        self.pinned = {}
        self.foreign = {}  # memory that the engine has allocated: its size, by address

    def call(self, function, *arguments):
        status = getattr(self.driver, function)(*(ctypes.c_size_t(a) if type(a) is int else a for a in arguments))
        assert status == 0, (function, status)

    # The part of torch.cuda that the front end uses.

    def Stream(self, device):
        return Stream(self)

    def current_stream(self, device):
        return self.current

    def is_current_stream_capturing(self):
        status = ctypes.c_int()
        self.call("cuStreamIsCapturing", self.current.cuda_stream, ctypes.byref(status))
        return status.value != 0

    def empty_cache(self):
        while self.free:
            self.call("cuMemFree_v2", self.free.pop()[0].address)

    def stream(self, stream):
        gpu = self

        class Current:
            def __enter__(self):
                self.before, gpu.current = gpu.current, stream

            def __exit__(self, *_):
                gpu.current = self.before

        return Current()

    # For tests.

    def calls(self, function):
        """How many calls of a function this process has made."""
        self.driver.standinCalls.restype = ctypes.c_ulonglong
        return self.driver.standinCalls(function.encode())

    def put(self, values, *, late=True):
        """A tensor with these values. If ``late``, a kernel of the current stream has yet to write them."""
        values = values.contiguous()
        with self.off():
            source = self._memory(values)
        self._move(source, values)
        if not late:
            return source
        with self.off():
            tensor = self._memory(values)
        self._copy(tensor, source, KERNEL_US)
        return tensor

    def get(self, tensor):
        """The values that a kernel of the current stream finds in a tensor."""
        assert self.holds(tensor), "the tensor is not on the device"
        with self.off():
            seen = self._memory(tensor)
            self._copy(seen, tensor, 0)
            self.current.synchronize()
            values = torch.empty(tensor.shape, dtype=tensor.dtype)
            size = tensor.numel() * tensor.element_size()
            self.call("cuMemcpyDtoH_v2", values.data_ptr(), seen.data_ptr(), size)
        return values

    def overwrite(self, tensor):
        """Have a kernel of the current stream write garbage."""
        self.driver.standinLaunch(
            0, ctypes.c_uint64(tensor.data_ptr()), ctypes.c_uint64(0), ctypes.c_size_t(tensor.numel()), 77, 0,
            ctypes.c_void_p(self.current.cuda_stream),
        )  # fmt: skip

    def holds(self, tensor):
        with self.off():
            storage = STORAGE_OF(tensor)
        address = storage.data_ptr()  # a tensor without elements has one, too
        return any(
            at <= address < at + size
            for at, size in [*((b.address, b.size) for b in self.blocks.values()), *self.foreign.items()]
        )

    def record_stream(self, tensor, stream):
        """Replaces Tensor.record_stream, which bypasses a TorchFunctionMode."""
        block = self.blocks.get(tensor.data_ptr())
        if block is not None:
            block.users.add(stream)

    def adopt(self, memory, _device):
        """A tensor on the engine's memory. Replaces torch.as_tensor."""
        address, size = memory.__cuda_array_interface__["data"][0], memory.__cuda_array_interface__["shape"][0]
        self.foreign[address] = size
        buffer = (ctypes.c_char * size).from_address(address)
        buffer.keeps = memory
        with self.off():
            return torch.frombuffer(buffer, dtype=torch.uint8)

    def off(self):
        return torch._C.DisableTorchFunction()

    # Memory.

    def _memory(self, like, pinned=False):
        """A tensor with the shape and type of ``like``, on the device or in pinned host memory."""
        size = max(1, like.numel()) * like.element_size()
        address = self._pin(size) if pinned else self._take(size)
        buffer = (ctypes.c_char * size).from_address(address)
        if not pinned:
            weakref.finalize(buffer, self._drop, address).atexit = False
        return torch.frombuffer(buffer, dtype=torch.uint8).view(like.dtype)[: like.numel()].view(like.shape)

    def _pin(self, size):
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), size, 0)
        return address.value

    def _take(self, size):
        size = -(-size // BLOCK) * BLOCK
        free = [] if self.captures else self.free  # PyTorch asks for no events while there are captures
        for i, (block, events) in enumerate(free):
            if block.size == size and block.stream is self.current and all(e.query() for e in events):
                del self.free[i]
                break
        else:
            address = ctypes.c_void_p()
            if self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) != 0:
                self.empty_cache()
                self.call("cuMemAlloc_v2", ctypes.byref(address), size)
            block = Block(address.value, size, self.current)
        block.users = set()
        self.blocks[block.address] = block
        return block.address

    def _drop(self, address):
        block = self.blocks.pop(address)
        self.free.append((block, [user.record_event() for user in block.users if user is not block.stream]))

    def _copy(self, target, source, microseconds):
        status = self.driver.standinLaunch(
            COPY, ctypes.c_uint64(target.data_ptr()), ctypes.c_uint64(source.data_ptr()),
            ctypes.c_size_t(source.numel() * source.element_size()), 0, microseconds,
            ctypes.c_void_p(self.current.cuda_stream),
        )  # fmt: skip
        assert status == 0

    # What PyTorch calls.

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.empty:
            device, pinned = kwargs.pop("device", None), kwargs.pop("pin_memory", False)
            on_device = device is not None and torch.device(device).type == "cuda"
            like = torch.empty(*args, **kwargs, device="meta" if on_device or pinned else None)
            return self._memory(like, pinned) if on_device or pinned else like
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if tensor is None or not any(self.holds(a) for a in args if isinstance(a, torch.Tensor)):
            return func(*args, **kwargs)
        if func == torch.Tensor.is_cuda.__get__:
            return self.holds(tensor)
        if func == torch.Tensor.is_cpu.__get__:
            return not self.holds(tensor)
        if func == torch.Tensor.device.__get__:
            return torch.device("cuda", self.device)
        if func is torch.Tensor.get_device:
            return self.device
        if func is torch.Tensor.copy_:
            self._move(tensor, args[1])
            inside = self.holds(tensor) and self.holds(args[1])  # then PyTorch does not wait
            if not inside and not kwargs.get("non_blocking"):
                self.current.synchronize()
            return tensor
        if func is torch.Tensor.cpu:
            return self.get(tensor)
        return func(*args, **kwargs)

    def _move(self, target, source):
        size, stream = source.numel() * source.element_size(), self.current.cuda_stream
        if not self.holds(source):
            self.call("cuMemcpyHtoDAsync_v2", target.data_ptr(), source.data_ptr(), size, stream)
        elif not self.holds(target):
            self.call("cuMemcpyDtoHAsync_v2", target.data_ptr(), source.data_ptr(), size, stream)
        else:
            self._copy(target, source, 0)
