"""GPU tensors that the engine uses in place, for NCCL.

Submission. The engine records an event on the caller's current stream, and its own stream waits for the event. So
neither the caller nor the caller's stream waits.

End. :func:`horovod.torch.synchronize` makes the stream that is current then wait for the result. With
``HOROVOD_ENABLE_ASYNC_COMPLETION=1`` the operation ends when NCCL's kernel is in the engine's stream, so the CPU does
not wait for the GPU. Otherwise it ends when the result is there. As with PyTorch's own operations, other streams must
wait for the stream that has synchronised.

Memory. PyTorch's caching allocator does not know the engine's stream. So the operation keeps its tensors until it is
synchronised. The stream that is current then waits for the operation, and ``record_stream`` tells the allocator that
this stream uses the tensors. So the memory of a tensor that is dropped at once is not reused before NCCL is done.

If the engine makes the output (allgather, alltoall), it allocates that itself. The current stream copies it into a
tensor of PyTorch's allocator, and the engine has its memory back after that, for other outputs: to free it would wait
until the whole GPU is idle, and hold up every kernel meanwhile. A large output is not copied: the tensor lies on the
engine's memory, which is freed with it. If the device has no memory left for an output, PyTorch's allocator gives its
unused blocks back first.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import weakref
from typing import Any, NamedTuple, Optional

import torch

from horovod.common import _lib, basics
from horovod.common._cells import Cell

# Tests replace this, because they run without a GPU.
_cuda: Any = torch.cuda

# In bytes. A copy takes the GPU no longer than about 30 µs.
_LARGEST_COPIED = 64 << 20

# Whether the engine takes tensors of a device, by its number, since the last init.
_taken: dict[int, bool] = {}


def takes(device: int) -> bool:
    """Whether the engine uses tensors of this device in place: NCCL carries them, or GOROVOD_GPU refuses them.

    NCCL uses only one device in this process: the first one asked for. Devices of ROCm are not taken.
    """
    taken = _taken.get(device)
    if taken is None:
        taken = _taken[device] = torch.version.hip is None and bool(_lib.load().gorovod_takes_device(device))
        if taken:
            _lib.load().gorovod_on_low_memory(ctypes.cast(_release, ctypes.c_void_p))
    return taken


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _release(_device: int) -> None:
    """Make PyTorch return unused device memory."""
    _cuda.empty_cache()


@atexit.register
def _stop_releasing() -> None:
    _lib.load().gorovod_on_low_memory(None)  # so that no call begins while Python ends


class OnDevice(NamedTuple):
    """GPU tensors of an operation; ``target`` is None if the engine makes the output."""

    source: torch.Tensor
    target: Optional[torch.Tensor]
    flags: int = 0

    def tell(self, operation: Cell, tensor: torch.Tensor) -> None:
        """Tell an operation on ``tensor``, which these represent, where they are, and when it may read them."""
        device = self.source.get_device()
        operation.on_device(device, _cuda.current_stream(device).cuda_stream)
        if self.source is not tensor:
            address = tensor.data_ptr()
            operation.stand_for(address, address if self.target is self.source else 0)

    def follow(self, operation: Cell) -> None:
        """Make the current stream wait for the operation, which has succeeded, and keep the memory until then."""
        stream = _cuda.current_stream(self.source.get_device())
        await_on(stream, operation)
        self.source.record_stream(stream)
        if self.target is not None and self.target is not self.source:
            self.target.record_stream(stream)

    def made_output(self, operation: Cell) -> torch.Tensor:
        """The output that the engine has made on the device."""
        like = self.source
        _, shape = _lib.output(operation.handle, like.dim())
        size = math.prod(shape) * like.element_size()
        if size == 0:
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        memory = _Memory(like.get_device(), _lib.take_output_address(operation.handle), size)
        # resize_: unlike view, in place: autograd must not take the result for a view
        made = _as_bytes(memory, like.device).view(like.dtype).resize_(shape)
        if size > _LARGEST_COPIED:
            return made
        try:
            result = torch.empty(shape, dtype=like.dtype, device=like.device)
        except RuntimeError:  # there is no memory for both
            return made
        result.copy_(made)
        memory.free_after(_cuda.current_stream(like.get_device()))
        return result


def await_on(stream: Any, operation: Cell) -> None:
    """Make a stream wait for the operation, which has succeeded; nothing else waits."""
    status = _lib.load().gorovod_await_on_stream(operation.handle, stream.cuda_stream)
    if status != _lib.OK:
        raise _lib.error(status)


def of(tensor: torch.Tensor, output: Optional[torch.Tensor]) -> OnDevice:
    """``tensor`` and ``output``; for negated views, copies on the device that hold their values."""
    if tensor.is_neg():
        source = tensor.detach().resolve_neg()
        return OnDevice(source, source if output is tensor else output)
    if output is not None and output.is_neg():
        return OnDevice(tensor, torch.empty(output.shape, dtype=output.dtype, device=output.device))
    return OnDevice(tensor, output)


class _Memory:
    """Device memory that the engine has allocated, in PyTorch's form. It is freed with this object."""

    def __init__(self, device: int, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "strides": None, "typestr": "|u1", "version": 2,
        }  # fmt: skip
        self._size = size
        self._owner = weakref.finalize(self, _lib.load().gorovod_free_on_device, device, address)
        self._owner.atexit = False  # its tensor may still be in use while Python exits

    def free_after(self, stream: Any) -> None:
        """Free it after the present work of a stream, which is the last to use it."""
        owned = self._owner.detach()
        if owned is not None:
            device, address = owned[2]
            _lib.load().gorovod_free_on_stream(device, address, self._size, stream.cuda_stream)


def _as_bytes(memory: _Memory, device: torch.device) -> torch.Tensor:
    """A tensor of uint8 on ``memory``, which it keeps alive."""
    return torch.as_tensor(memory, device=device)


basics.before_init.append(_taken.clear)
basics.after_shutdown.append(_taken.clear)
