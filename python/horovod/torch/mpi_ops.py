"""Collectives on PyTorch tensors.

An operation is submitted to the engine with the address of its tensor's memory and is named by a *handle*, an int. The
table ``_handle_map`` keeps its tensors alive until :func:`synchronize`, however the caller is interrupted. A tensor
that is not in host memory goes through a copy there.

Ranks match their operations by name: ``<op>.<name>``, or ``<op>.noname.<handle>`` without one. So all ranks must issue
their unnamed operations in the same order, and must have issued as many operations of every kind before.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Any, Optional

import torch

from horovod.common import _lib, process_sets
from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.torch.compression import Compression, Compressor

_basics = HorovodBasics(__file__)

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

Average = _basics.Average
Sum = _basics.Sum
Adasum = _basics.Adasum
Min = _basics.Min
Max = _basics.Max
Product = _basics.Product

_REDUCE_OPS = frozenset((Average, Sum, Min, Max, Product))

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)

_DTYPES = {
    torch.uint8: _lib.UINT8,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.bfloat16: _lib.BFLOAT16,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.bool: _lib.BOOL,
}
if hasattr(torch, "uint16"):  # PyTorch 2.3
    _DTYPES[torch.uint16] = _lib.UINT16


class _Operation:
    """An operation that somebody will synchronise, and the tensors whose memory it uses."""

    __slots__ = ("engine_handle", "host_input", "host_output", "input", "output", "taken", "waiting")

    def __init__(
        self, input: Optional[torch.Tensor], output: Optional[torch.Tensor],
        host_input: Optional[torch.Tensor], host_output: Optional[torch.Tensor],
    ) -> None:  # fmt: skip
        self.engine_handle = 0
        self.input = input
        self.output = output  # None: an allgather, whose output the engine allocates
        self.host_input = host_input
        self.host_output = host_output
        self.waiting = False  # a thread is in synchronize and will take it
        self.taken = False  # its engine handle is, or is about to be, released

    def result(self) -> Optional[torch.Tensor]:
        """The output of the operation, which has ended well."""
        if self.output is not None:
            if self.host_output is not self.output:
                self.output.detach().copy_(self.host_output)
            return self.output
        if self.input is None:
            return None
        address, shape = _lib.output(self.engine_handle)
        gathered = torch.empty(shape, dtype=self.input.dtype)
        ctypes.memmove(gathered.data_ptr(), address, gathered.numel() * gathered.element_size())
        return gathered.to(self.input.device)


_handle_map: dict[int, _Operation] = {}
_handles = itertools.count(1)
# Protects the field taken, and the removal from _handle_map.
_taking = threading.Lock()


def init(*args: Any, **kwargs: Any) -> None:
    process_sets._setup(_basics)
    _basics.init(*args, **kwargs)


def shutdown() -> None:
    """Leave the job. Handles that nobody synchronised are forgotten, and handles count from 1 again."""
    global _handles
    # The engine touches no tensor any more once it is shut down, so the order matters.
    _basics.shutdown()
    with _taking:
        forgotten = [operation for operation in _handle_map.values() if not operation.waiting]
        for operation in forgotten:
            operation.taken = True
        _handle_map.clear()
        _handles = itertools.count(1)
    for operation in forgotten:
        _lib.release(operation.engine_handle)


init.__doc__ = HorovodBasics.init.__doc__


def _dtype(tensor: torch.Tensor) -> int:
    """Check that the engine can work on ``tensor``, and return its element type. Raises ValueError or TypeError."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(f"Tensor of layout {tensor.layout} is not supported; convert it with to_dense() first.")
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return dtype


def _name(kind: str, name: Optional[str], handle: int) -> bytes:
    if name is None:
        return b"%s.noname.%d" % (kind.encode(), handle)
    if "\0" in name:
        raise ValueError(f"name {name!r} contains a NUL character")
    return f"{kind}.{name}".encode()


def _process_set_id(process_set: ProcessSet) -> int:
    process_set_id = process_set.process_set_id
    if process_set_id is None:
        raise ValueError(f"{process_set} is not initialized; pass it to hvd.init() or to hvd.add_process_set().")
    return process_set_id


def _on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _host_copy(tensor: torch.Tensor, copy: bool) -> torch.Tensor:
    """Host memory for ``tensor`` of another device: with its contents, when they are computed, if ``copy``."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return host.copy_(tensor.detach()) if copy else host


def _submit(
    kind: str,
    tensor: torch.Tensor,
    output: Optional[torch.Tensor],
    name: Optional[str],
    process_set: ProcessSet,
    wait: bool,
    reduce_op: int = 0,
    root_rank: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> int:
    """Submit an operation that reads ``tensor`` and writes ``output`` (may be the same; None for allgather)."""
    dtype = _dtype(tensor)
    process_set_id = _process_set_id(process_set)
    handle = next(_handles)
    wire_name = _name(kind, name, handle)
    if _on_host(tensor):
        host_input, host_output = tensor, output
    else:
        host_input = _host_copy(tensor, copy=True)
        host_output = None if output is None else host_input if output is tensor else _host_copy(output, copy=False)
    return _enqueue(
        handle,
        _Operation(tensor, output, host_input, host_output),
        _KINDS[kind],
        dtype,
        tensor.shape,
        wire_name,
        host_input.data_ptr(),
        None if host_output is None else host_output.data_ptr(),
        process_set_id,
        _lib.WILL_WAIT if wait else 0,
        reduce_op,
        root_rank,
        prescale,
        postscale,
    )


def _enqueue(handle: int, operation: _Operation, *arguments: Any) -> int:
    # In the table first: an interrupt after the submission must find the tensors kept alive.
    _handle_map[handle] = operation
    try:
        operation.engine_handle = _lib.enqueue(*arguments)
    except Exception:
        del _handle_map[handle]
        raise
    return handle


_KINDS = {"allreduce": _lib.ALLREDUCE, "allgather": _lib.ALLGATHER, "broadcast": _lib.BROADCAST}


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    _dtype(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _check_reduce_op(op: int) -> None:
    if op in _REDUCE_OPS:
        return
    if op == Adasum:
        raise NotImplementedError("op=Adasum is not supported by this version; use Average or Sum.")
    raise ValueError(f"unknown reduce operation {op!r}; use Average, Sum, Min, Max or Product.")


def _needs_grad(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()


# ---- allreduce


def _allreduce_async(
    tensor: torch.Tensor,
    in_place: bool,
    name: Optional[str],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    wait: bool,
) -> int:
    _check_reduce_op(op)
    output = tensor if in_place else _empty_like(tensor)
    return _submit(
        "allreduce", tensor, output, name, process_set, wait,
        reduce_op=op, prescale=prescale_factor, postscale=postscale_factor,
    )  # fmt: skip


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`allreduce` and return a handle for :func:`poll` and :func:`synchronize`.

    ``tensor`` must not change before that. The result is not recorded by autograd. Errors as :func:`allreduce`.
    """
    op = handle_average_backwards_compatibility(op, average)
    return _allreduce_async(tensor, False, name, op, prescale_factor, postscale_factor, process_set, wait=False)


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As :func:`allreduce_async`, but into ``tensor`` itself."""
    op = handle_average_backwards_compatibility(op, average)
    return _allreduce_async(tensor, True, name, op, prescale_factor, postscale_factor, process_set, wait=False)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As :func:`allreduce`, but into ``tensor`` itself, which is returned. Not recorded by autograd."""
    op = handle_average_backwards_compatibility(op, average)
    return synchronize(
        _allreduce_async(tensor, True, name, op, prescale_factor, postscale_factor, process_set, wait=True)
    )


class HorovodAllreduce(torch.autograd.Function):
    """Allreduce whose gradient is the allreduce of the gradient, with the same op and factors."""

    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor, process_set):  # noqa: ANN001, ANN205, D102
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return synchronize(
            _allreduce_async(tensor, False, name, op, prescale_factor, postscale_factor, process_set, wait=True)
        )

    @staticmethod
    def backward(ctx, grad_output):  # noqa: ANN001, ANN205, D102
        op, prescale_factor, postscale_factor, process_set = ctx.arguments
        grad = allreduce(
            grad_output.contiguous(),
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return grad, None, None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce ``tensor`` elementwise over the ranks of ``process_set``, and return the result, the same on all. Blocks.

    Shape, dtype (uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, bool), ``op`` and factors must
    be the same on all ranks. ``op`` is Average (default), Sum, Min, Max or Product; ``average`` is its deprecated
    form. Each element is multiplied by ``prescale_factor`` before and by ``postscale_factor`` after; on integers, in
    double precision and truncated. The result is differentiable.

    Raises ValueError for a tensor that is not contiguous, of another dtype, or whose name is in use; TypeError for
    what is no tensor; NotImplementedError for Adasum; HorovodInternalError if the ranks disagree or one of them is
    gone.
    """
    op = handle_average_backwards_compatibility(op, average)
    compressed, ctx = compression.compress(tensor)
    if _needs_grad(compressed):
        reduced = HorovodAllreduce.apply(compressed, name, op, prescale_factor, postscale_factor, process_set)
    else:
        reduced = synchronize(
            _allreduce_async(compressed, False, name, op, prescale_factor, postscale_factor, process_set, wait=True)
        )
    return compression.decompress(reduced, ctx)


# ---- allgather


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`allgather` and return a handle for :func:`poll` and :func:`synchronize`."""
    return _submit("allgather", tensor, None, name, process_set, wait=False)


class HorovodAllgather(torch.autograd.Function):
    """Allgather whose gradient is this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):  # noqa: ANN001, ANN205, D102
        ctx.process_set = process_set
        ctx.rows = tensor.shape[0] if tensor.dim() else 1
        return synchronize(_submit("allgather", tensor, None, name, process_set, wait=True))

    @staticmethod
    def backward(ctx, grad_output):  # noqa: ANN001, ANN205, D102
        averaged = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows]), process_set=ctx.process_set)
        start = int(rows[: ctx.process_set.rank()].sum())
        return averaged.narrow(0, start, ctx.rows), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenate ``tensor`` of all ranks along its first dimension, in the order of ranks. Blocks.

    Dtype and the other dimensions must be the same on all ranks; the first may differ and may be 0. dtypes and errors
    as :func:`allreduce`; a tensor without dimensions is a HorovodInternalError. The result is differentiable.
    """
    if _needs_grad(tensor):
        return HorovodAllgather.apply(tensor, name, process_set)
    return synchronize(_submit("allgather", tensor, None, name, process_set, wait=True))


# ---- broadcast


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`broadcast` and return a handle for :func:`poll` and :func:`synchronize`."""
    return _submit("broadcast", tensor, _empty_like(tensor), name, process_set, wait=False, root_rank=root_rank)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """As :func:`broadcast_async`, but into ``tensor`` itself."""
    return _submit("broadcast", tensor, tensor, name, process_set, wait=False, root_rank=root_rank)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """As :func:`broadcast`, but into ``tensor`` itself, which is returned. Not recorded by autograd."""
    return synchronize(_submit("broadcast", tensor, tensor, name, process_set, wait=True, root_rank=root_rank))


class HorovodBroadcast(torch.autograd.Function):
    """Broadcast whose gradient is the averaged gradient on the root, and zero elsewhere."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):  # noqa: ANN001, ANN205, D102
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(
            _submit("broadcast", tensor, _empty_like(tensor), name, process_set, wait=True, root_rank=root_rank)
        )

    @staticmethod
    def backward(ctx, grad_output):  # noqa: ANN001, ANN205, D102
        averaged = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        return averaged if rank() == ctx.root_rank else torch.zeros_like(averaged), None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return the ``tensor`` of rank ``root_rank`` (a rank of the world) on all ranks of ``process_set``. Blocks.

    Shape, dtype and root must be the same on all ranks. dtypes and errors as :func:`allreduce`; a root outside the set
    is a ValueError. The result is differentiable.
    """
    if _needs_grad(tensor):
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    output = _empty_like(tensor)
    return synchronize(_submit("broadcast", tensor, output, name, process_set, wait=True, root_rank=root_rank))


# ---- barrier, poll, synchronize


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when every rank of ``process_set`` has called this. Raises HorovodInternalError if one cannot."""
    process_set_id = _process_set_id(process_set)
    handle = next(_handles)
    operation = _Operation(None, None, None, None)
    _enqueue(handle, operation, _lib.BARRIER, _lib.UINT8, (), None, None, None, process_set_id, _lib.WILL_WAIT)
    synchronize(handle)


def poll(handle: int) -> bool:
    """Whether the operation has ended, so that :func:`synchronize` will not block.

    Raises ValueError for a handle that was synchronised already.
    """
    operation = _handle_map.get(handle)
    if operation is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return _lib.poll(operation.engine_handle)


def synchronize(handle: int) -> Optional[torch.Tensor]:
    """Wait for the operation and return its output; None if the handle was synchronised already.

    Raises HorovodInternalError if the operation failed, ValueError if its arguments were bad. Either way the handle is
    gone. KeyboardInterrupt leaves the handle, its operation and its tensors as they are.
    """
    operation = _handle_map.get(handle)
    if operation is None:
        return None
    operation.waiting = True
    try:
        status = _lib.wait(operation.engine_handle)
    except BaseException:
        operation.waiting = False
        raise
    with _taking:
        if operation.taken:
            return None  # another thread has synchronised it meanwhile
        operation.taken = True
        if _handle_map.get(handle) is operation:
            del _handle_map[handle]
    try:
        if status != _lib.OK:
            _lib.raise_for(status)
        return operation.result()
    finally:
        _lib.release(operation.engine_handle)
