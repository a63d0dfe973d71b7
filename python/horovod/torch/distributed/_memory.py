"""Tensors in the engine's form: contiguous memory with an element type, of the host, or of a GPU for NCCL."""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any, Optional, Sequence

import torch

from horovod.common import _lib
from horovod.common._operations import Operation
from horovod.torch import _device_memory, _operation, _staging
from horovod.torch._submission import _DTYPES as ENGINE_DTYPES


def elements(tensor: torch.Tensor, moved: bool) -> int:
    """The engine's element type. A type that the engine does not know travels as bytes if it is only ``moved``.

    Raises ValueError for a tensor that is to be reduced, if the engine does not know its type.
    """
    dtype = ENGINE_DTYPES.get(tensor.dtype)
    if dtype is None and not moved:
        raise ValueError(f"{tensor.dtype} cannot be reduced over gorovod; convert the tensor first")
    return _lib.UINT8 if dtype is None else dtype


def reducible(tensor: torch.Tensor, op: str) -> torch.Tensor:
    """``tensor``, from :func:`readable` or :func:`writable`; for complex elements, the numbers in them.

    Raises ValueError for an operation that these numbers do not allow.
    """
    if not tensor.is_complex():
        return tensor
    if op not in ("SUM", "AVG"):
        raise ValueError(f"ReduceOp.{op} is not for complex numbers: {tensor.dtype}")
    return torch.view_as_real(tensor)


def rows(tensor: torch.Tensor) -> int:
    """How many elements the engine counts in the tensor."""
    n = math.prod(tensor.shape)
    return n if tensor.dtype in ENGINE_DTYPES else n * tensor.element_size()


def size(tensor: torch.Tensor) -> int:
    """Bytes of the values."""
    return math.prod(tensor.shape) * tensor.element_size()


def dtype_label(dtype: torch.dtype) -> int:
    """A number of 16 bits, not 0, that identifies a dtype on every rank, in all versions of PyTorch."""
    return zlib.crc32(str(dtype).encode()) % 0xFFFF + 1


def described(length: int, label: int) -> str:
    """A message's size in words: in bytes, and in elements if the label tells their type."""
    for dtype in vars(torch).values():
        if isinstance(dtype, torch.dtype) and dtype_label(dtype) == label:
            elements, rest = divmod(length, torch.empty((), dtype=dtype, device="meta").element_size())
            if rest == 0:
                return f"{elements} elements of {dtype}"
    return f"{length} bytes"


def on_device(tensor: torch.Tensor) -> bool:
    """Whether the engine uses the tensor on its GPU; otherwise a GPU tensor goes through the host."""
    return tensor.is_cuda and _device_memory.takes(tensor.get_device())


def usable(tensor: torch.Tensor, by_host: bool = False) -> bool:
    """Whether the engine, or the host, can use the tensor itself. ValueError if it is not dense, or has no memory."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"a tensor of layout {tensor.layout} is not supported: make it dense first")
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the device meta has no values: move it to a device with to_empty() first")
    here = tensor.device.type == "cpu" or not by_host and on_device(tensor)
    return here and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj())


def readable(tensor: torch.Tensor, by_host: bool = False) -> torch.Tensor:
    """The tensor itself, or a copy that can be read. ValueError if the tensor is not dense."""
    tensor = tensor.detach()
    if usable(tensor, by_host):
        return tensor
    if by_host or not on_device(tensor):
        _check_no_capture(tensor)
        tensor = tensor.cpu()
    return tensor.resolve_conj().resolve_neg().contiguous()


def writable(tensor: torch.Tensor, by_host: bool = False) -> torch.Tensor:
    """The tensor itself, or memory of its shape that can be written, and is copied into the tensor later.

    Raises ValueError if the tensor is not dense.
    """
    tensor = tensor.detach()
    if usable(tensor, by_host):
        return tensor
    if not by_host and on_device(tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_cuda:
        _check_no_capture(tensor)
        # The stream's pending work on the tensor must end first: another thread may copy the result into it.
        _device_memory._cuda.current_stream(tensor.device).synchronize()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _check_no_capture(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        _staging.check_no_capture()


def empty(elements: int, like: torch.Tensor) -> torch.Tensor:
    """Memory for this many elements, where the engine works on tensors like this one. ValueError if it is quantized."""
    if like.is_quantized:
        raise ValueError(f"a quantized tensor, of {like.dtype}, is not supported: give its int_repr()")
    if on_device(like):
        return torch.empty(elements, dtype=like.dtype, device=like.device)
    return torch.empty(elements, dtype=like.dtype, device="cpu")


def follow(operations: Sequence[Operation]) -> Any:
    """A stream that waits for operations that have succeeded; None if they were in host memory.

    PyTorch's allocator keeps their memory for this stream.
    """
    followed = [operation for operation in operations if operation.device >= 0]
    if not followed:
        return None
    stream = _following(followed[0].device)
    for operation in followed:
        _device_memory.await_on(stream, operation)
        for tensor, *_ in operation.keeps:
            tensor.record_stream(stream)
    return stream


@functools.lru_cache(maxsize=None)
def _following(device: int) -> Any:
    return _device_memory._cuda.Stream(device)


def store(host: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy the memory from :func:`writable` or :func:`readable` for ``tensor`` back into it."""
    if host.data_ptr() != tensor.data_ptr() or host.device != tensor.device:
        tensor.detach().copy_(host)


def packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor of one dimension that the engine can use, with the values of all tensors in sequence.

    Raises ValueError if their types differ, or if one cannot be read.
    """
    for tensor in tensors:
        usable(tensor)
    if len({t.dtype for t in tensors}) > 1:
        raise ValueError(f"the tensors must have one type, but have {sorted({str(t.dtype) for t in tensors})}")
    _check_no_capture(tensors[0])
    flat = empty(sum(t.numel() for t in tensors), tensors[0])
    unpack(flat, tensors, into=False)
    return flat


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor], into: bool = True) -> None:
    """Copy the parts of ``flat`` into the tensors, or the tensors into ``flat``."""
    at = 0
    for tensor in tensors:
        part = flat[at : at + tensor.numel()].view(tensor.shape)
        at += tensor.numel()
        if into:
            tensor.detach().copy_(part)
        else:
            part.copy_(tensor.detach())


def check_unmoved(kept: Sequence[Sequence[Any]], what: str) -> None:
    """Raise ValueError if tensors that the operation ``what`` has used are no longer at the addresses after them.

    A third member is the storage that a tensor had when the operation began, if it may have got another one since.
    """
    for tensor, address, *storage in kept:
        if tensor.data_ptr() != address:
            _operation.check_unmoved(storage[0] if storage else _operation.storage_of(tensor), address, what)


def check_written(tensors: Sequence[torch.Tensor], what: str) -> None:
    """Raise ValueError if ``what`` would write a tensor whose elements share memory, such as an expanded one."""
    for tensor in tensors:
        if not tensor.is_contiguous() and _elements_overlap(tensor):
            raise ValueError(
                f"{what} writes to a tensor whose elements share memory, as after expand(): its shape is "
                f"{tuple(tensor.shape)}, its strides are {tensor.stride()}. Give it memory of its own first, with "
                "clone() or contiguous()."
            )


def _elements_overlap(tensor: torch.Tensor) -> bool:
    steps = sorted((stride, length) for stride, length in zip(tensor.stride(), tensor.shape) if length > 1)
    last = 0  # the offset of the last element along the dimensions so far
    for stride, length in steps:
        if stride <= last or stride == 0:
            break
        last += stride * (length - 1)
    else:
        return False
    if tensor.numel() == 0:
        return False
    offsets = torch.zeros(1, dtype=torch.int64, device="cpu")
    for stride, length in steps:
        offsets = (offsets[:, None] + stride * torch.arange(length, device="cpu")).flatten()
    return offsets.unique().numel() < offsets.numel()


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the tensors share memory, or their address ranges overlap."""
    (device, begin, end), (other, first, last) = extent(a), extent(b)
    return device == other and begin < last and first < end


def extent(tensor: torch.Tensor) -> tuple[torch.device, int, int]:
    """The device of the tensor's memory, and the range of its addresses; an empty one if there are no elements."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return tensor.device, begin, begin
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
    return tensor.device, begin, begin + (last + 1) * tensor.element_size()


def same_size(tensors: Sequence[torch.Tensor], count: int, what: str, like: Optional[torch.Tensor] = None) -> None:
    """Raise ValueError unless these are ``count`` tensors of one size and type, that of ``like`` if given."""
    if len(tensors) != count:
        raise ValueError(f"{what} must be {count} tensors, one for each rank of the group, not {len(tensors)}")
    like = tensors[0] if like is None else like
    for tensor in tensors:
        if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
            raise ValueError(
                f"{what} must hold tensors of one size and type: {tuple(tensor.shape)} of {tensor.dtype} is not like "
                f"{tuple(like.shape)} of {like.dtype}"
            )
