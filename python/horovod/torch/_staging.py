"""Copies in host memory of tensors whose own memory the engine cannot use: those of a GPU that NCCL does not carry
(:mod:`._device_memory` has the others), and negated views.

A CUDA tensor (ROCm's are that, too) is copied into pinned memory on a stream of this module's own, after what the
caller's stream has been given so far; neither the caller nor its stream waits for that. An event tells the engine when
the copy is complete: it asks CUDA itself, without Python. The result is copied back on the stream that is current
where it is fetched, after all that stream has been given, and is there for what comes next on it: as with PyTorch's
own operations, other streams must wait for that one. PyTorch's allocators hear of each use on another stream
(``record_stream``), so that memory which is dropped early is not reused too early.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

import torch

from horovod.common._cells import COPIED, Cell, DeviceEvent
from horovod.torch import _device_memory

# What tests replace: there is no GPU where they run.
_cuda: Any = torch.cuda


class Copies(NamedTuple):
    """What the engine works on in place of a tensor and of its output; None if it makes the output itself."""

    source: torch.Tensor
    target: Optional[torch.Tensor]
    event: Optional[DeviceEvent]  # the source holds the tensor's values when it is complete; None: it does already
    flags: int  # of the operation

    def tell(self, operation: Cell, tensor: torch.Tensor) -> None:
        """Tell an operation on the copies of ``tensor`` when it may read them, and whose memory they stand for."""
        if self.event is not None:
            operation.wait_for(self.event)
        address = tensor.data_ptr()
        operation.stand_for(address, address if self.target is self.source else 0)


def _usable(tensor: torch.Tensor) -> bool:
    """Whether the engine can work on the tensor's memory: it is the host's, and its values are not to be negated."""
    return tensor.is_cpu and not tensor.is_neg()


def host_memory(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Undefined contents in host memory, of the type of ``like``, from and to whose device it copies fast."""
    return torch.empty(shape, dtype=like.dtype, pin_memory=like.is_cuda, device="cpu")


def for_engine(tensor: torch.Tensor, output: Optional[torch.Tensor]) -> Union[Copies, _device_memory.OnDevice, None]:
    """What the engine gets in place of tensors that are not in host memory that it can use; None if they are."""
    usable = _usable(tensor)
    if usable and (output is tensor or output is None or _usable(output)):
        return None
    if tensor.is_cuda and _device_memory.takes(tensor.get_device()):
        return _device_memory.of(tensor, output)
    source, event = (tensor, None) if usable else _fetched(tensor.detach())
    flags = COPIED if tensor.is_cuda else 0
    if output is tensor:
        return Copies(source, source, event, flags)
    if output is not None and not _usable(output):
        return Copies(source, host_memory(output.shape, output), event, flags)
    return Copies(source, output, event, flags)


def to_device(host: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``host``, from :func:`host_memory`, on the device of ``like``."""
    if like.is_cpu:
        return host
    tensor = torch.empty(host.shape, dtype=host.dtype, device=like.device)
    store(host, tensor)
    return tensor


def store(host: torch.Tensor, tensor: torch.Tensor) -> None:
    """Give ``tensor`` the values of ``host``; on a GPU, after what its current stream has been given."""
    tensor = tensor.detach()
    tensor.copy_(host, non_blocking=True)  # PyTorch does not reuse pinned memory before the copy has ended
    if tensor.is_cuda:
        # The memory may belong to another stream, on which the operation was submitted.
        tensor.record_stream(_cuda.current_stream(tensor.device))


def check_one_device(tensors: Sequence[torch.Tensor]) -> None:
    """Raise ValueError if the tensors of a group are on several devices."""
    if any(not tensor.is_cpu for tensor in tensors):
        devices = sorted({str(tensor.device) for tensor in tensors})
        if len(devices) > 1:
            raise ValueError(f"Not all tensors of the group are on the same device: {', '.join(devices)}.")


def capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    return bool(_cuda.is_current_stream_capturing())


def completion(event: Any) -> Callable[[], bool]:
    """A function that tells whether a recorded event is reached, on any thread.

    It leaves captures of other threads alone if the library of the events is to be found.
    """
    query = _event_query()
    return event.query if query is None else DeviceEvent(event, event.cuda_event, *query).is_complete


def check_no_capture() -> None:
    """Raise ValueError if the current stream is being captured into a CUDA graph."""
    if capturing():
        raise ValueError(
            "The current stream is being captured into a CUDA graph, which cannot hold collectives; leave the "
            "collective out of the graph, its submission and its end."
        )


def _fetched(tensor: torch.Tensor) -> tuple[torch.Tensor, Optional[DeviceEvent]]:
    """A copy in host memory, and when it is complete."""
    if not tensor.is_cuda:
        return host_memory(tensor.shape, tensor).copy_(tensor), None
    check_no_capture()
    # For a negated view PyTorch negates the copy on the host, perhaps before the data has arrived.
    tensor = tensor.resolve_neg()
    host = host_memory(tensor.shape, tensor)
    stream = _stream_of(tensor.device)
    stream.wait_stream(_cuda.current_stream(tensor.device))
    with _cuda.stream(stream):
        host.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)
        event = stream.record_event()
    query = _event_query()
    if query is None:
        event.synchronize()
        return host, None
    return host, DeviceEvent(event, event.cuda_event, *query)


@functools.lru_cache(maxsize=None)
def _stream_of(device: torch.device) -> Any:
    return _cuda.Stream(device)


# By platform: the function that asks for an event's state, its library, and its answer for an incomplete event.
_QUERIES = (("cudaEventQuery", "/libcudart", 600), ("hipEventQuery", "/libamdhip64", 600))


@functools.lru_cache(maxsize=None)
def _event_query() -> Optional[tuple[int, int]]:
    """The address of the function that tells of an event, in the library that PyTorch uses, and what says "not yet".

    None if it is not to be found, as where PyTorch has it linked statically.
    """
    with open("/proc/self/maps") as file:
        loaded = {path for line in file for path in line.split()[5:6]}
    for name, library, pending in _QUERIES:
        for path in (None, *sorted(path for path in loaded if library in path)):
            try:
                function = getattr(ctypes.CDLL(path), name)
            except (OSError, AttributeError):
                continue
            address = ctypes.cast(function, ctypes.c_void_p).value
            if address:
                return address, pending
    return None
