"""Collectives on one tensor at a time."""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Callable, Optional, Sequence, Union

import torch

from horovod.common import _facts, _job, _lib
from horovod.common._reduce_ops import (
    Adasum,
    Average,
    Sum,
    handle_average_backwards_compatibility,
)
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._compiling import between_graphs
from horovod.torch._graph import in_graph
from horovod.torch._submission import (
    Result,
    empty_like,
    empty_share,
    engine_dtype,
    last_joined,
    process_set_id,
    rows_and_splits,
    submit,
    submit_without_tensor,
    synchronize,
)
from horovod.torch.compression import Compression, Compressor, prepare, wire_of

# What users see: ``horovod.torch`` and ``horovod.torch.mpi_ops`` re-export it.
__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "join",
    "reduce",
    "reduce_",
    "reduce_async",
    "reduce_async_",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]

_REDUCE_OPS = _facts.kinds()["allreduce"].reduce_ops
_PLAIN_OPS = _REDUCE_OPS - {Adasum}


def check_known_op(op: int) -> None:
    """Raise ValueError for what is no reduce operation."""
    if op not in _REDUCE_OPS:
        raise ValueError(f"unknown reduce operation {op!r}; use Average, Sum, Adasum, Min, Max or Product.")


def check_reduce_op(op: int, process_set: ProcessSet) -> None:
    """As :func:`check_known_op`; NotImplementedError for Adasum on a part of the ranks."""
    if op in _PLAIN_OPS:
        return
    check_known_op(op)
    if op == Adasum and getattr(process_set, "process_set_id", None) != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")


def needs_grad(tensor: torch.Tensor) -> bool:
    """Whether autograd records what happens to ``tensor``."""
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()


# ---- allreduce


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`allreduce`. ``tensor`` must not change before the end. Not recorded by autograd.

    Args:
        tensor: as of :func:`allreduce`.
        name: by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as of :func:`allreduce`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`allreduce`.

    Example:
        >>> handle = hvd.allreduce_async(torch.tensor([3.0]), name="x")
        >>> hvd.synchronize(handle)
        tensor([3.])
    """
    op = handle_average_backwards_compatibility(op, average)
    check_reduce_op(op, process_set)
    output = empty_like(tensor, name)
    return submit("allreduce", tensor, output, name, process_set, False, op, prescale_factor, postscale_factor)


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`allreduce_`: as :func:`allreduce_async`, but into ``tensor`` itself.

    Args:
        tensor: as of :func:`allreduce`; it is overwritten.
        name: by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as of :func:`allreduce`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`allreduce`.

    Example:
        >>> handle = hvd.allreduce_async_(torch.tensor([3.0]), name="x")
        >>> hvd.synchronize(handle)
        tensor([3.])
    """
    op = handle_average_backwards_compatibility(op, average)
    check_reduce_op(op, process_set)
    return submit("allreduce", tensor, tensor, name, process_set, False, op, prescale_factor, postscale_factor)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce ``tensor`` as :func:`allreduce`, but into the tensor itself. Not recorded by autograd.

    Args:
        tensor: as of :func:`allreduce`; it is overwritten.
        name: by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as of :func:`allreduce`.

    Returns:
        ``tensor``.

    Raises:
        ValueError, TypeError, NotImplementedError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> x = torch.tensor([1.0, 2.0])
        >>> hvd.allreduce_(x, op=hvd.Sum) is x
        True
    """
    op = handle_average_backwards_compatibility(op, average)
    if in_graph():
        arguments = (None, name, Compression.none, op, prescale_factor, postscale_factor, process_set)
        return write_into(tensor, allreduce(tensor.detach(), *arguments))
    check_reduce_op(op, process_set)
    return synchronize(
        submit("allreduce", tensor, tensor, name, process_set, True, op, prescale_factor, postscale_factor)
    )


def write_into(tensor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """What an operation in place is in a graph, where the compiler knows whose memory to use."""
    tensor.detach().copy_(result)
    return tensor


class HorovodAllreduce(torch.autograd.Function):
    """Allreduce whose gradient is the allreduce of the gradient, with the same op and factors."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: Optional[str],
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        compression: type[Compressor],
    ) -> torch.Tensor:
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set, compression)
        wire = wire_of(compression, tensor, op)
        arguments = (tensor, empty_like(tensor, name), name, process_set, True, op, prescale_factor, postscale_factor)
        return synchronize(submit("allreduce", *arguments, wire=wire))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        op, prescale_factor, postscale_factor, process_set, compression = ctx.arguments
        grad = allreduce(
            grad_output.contiguous(),
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return grad, None, None, None, None, None, None


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
    """Reduce ``tensor`` elementwise over the ranks of ``process_set``. Blocks. The result is differentiable.

    Shape, dtype, ``op``, factors and ``compression`` must be the same on all ranks. Ranks match their calls by
    ``name``. Those without one are numbered, by one count of the set's allreduces: all its ranks must issue them in the
    same order.

    Args:
        tensor: dense and contiguous; uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32, float64 or
            bool.
        average: deprecated form of ``op``: True is Average, False is Sum.
        name: by which ranks match their calls. Calls without a name are matched by their number.
        compression: how the tensor travels, see :class:`Compression`.
        op: Average (default), Sum, Min, Max, Product or, on floating-point tensors of all ranks, Adasum
            (arXiv:2006.02924).
        prescale_factor: each element is multiplied by it before; on integers in double precision, and truncated.
        postscale_factor: the same, after.
        process_set: the ranks that take part.

    Returns:
        The result, the same on all ranks.

    Raises:
        ValueError: the tensor is not contiguous, is of another dtype, or its name is in use.
        TypeError: what is given is no tensor.
        NotImplementedError: Adasum on other than all ranks.
        HorovodInternalError: the ranks disagree, or one of them is gone.

    Example:
        >>> hvd.allreduce(torch.tensor([1.0, 2.0]), op=hvd.Sum, name="gradient")
        tensor([1., 2.])
    """
    op = handle_average_backwards_compatibility(op, average)
    check_reduce_op(op, process_set)
    compressed, ctx, wire = prepare(compression, tensor, op)
    if in_graph():
        number = process_set_id(process_set)
        reduced = _graph.allreduce(compressed, name, op, float(prescale_factor), float(postscale_factor), wire, number)
    elif needs_grad(compressed):
        rest = compression if wire else Compression.none
        reduced = HorovodAllreduce.apply(compressed, name, op, prescale_factor, postscale_factor, process_set, rest)
    else:
        output = empty_like(compressed, name)
        arguments = (compressed, output, name, process_set, True, op, prescale_factor, postscale_factor)
        reduced = synchronize(submit("allreduce", *arguments, wire=wire))
    return compression.decompress(reduced, ctx)


# ---- allgather


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`allgather`.

    Args:
        tensor, name, process_set: as of :func:`allgather`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Example:
        >>> hvd.synchronize(hvd.allgather_async(torch.tensor([7])))
        tensor([7])
    """
    return submit("allgather", tensor, None, name, process_set, wait=False)


class HorovodAllgather(torch.autograd.Function):
    """Allgather whose gradient is this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet) -> torch.Tensor:
        ctx.process_set = process_set
        ctx.rows = tensor.shape[0] if tensor.dim() else 1
        return synchronize(submit("allgather", tensor, None, name, process_set, wait=True))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        averaged = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows]), process_set=ctx.process_set)
        start = int(rows[: ctx.process_set.rank()].sum())
        return averaged.narrow(0, start, ctx.rows), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenate ``tensor`` of all ranks along its first dimension, in the order of ranks. Blocks. Differentiable.

    Args:
        tensor: dtype and the other dimensions must be the same on all ranks; the first may differ and may be 0.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        The rows of all ranks.

    Raises:
        ValueError, TypeError: as :func:`allreduce`.
        HorovodInternalError: the ranks disagree, the tensor has no dimension, or a rank is gone.

    Example:
        >>> hvd.allgather(torch.tensor([[1, 2]]))
        tensor([[1, 2]])
    """
    if in_graph():
        return _graph.allgather(tensor, name, process_set_id(process_set))
    if needs_grad(tensor):
        return HorovodAllgather.apply(tensor, name, process_set)
    return synchronize(submit("allgather", tensor, None, name, process_set, wait=True))


# ---- broadcast


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`broadcast`.

    Args:
        tensor, root_rank, name, process_set: as of :func:`broadcast`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`allreduce`.

    Example:
        >>> hvd.synchronize(hvd.broadcast_async(torch.tensor([2]), root_rank=0))
        tensor([2])
    """
    return submit("broadcast", tensor, empty_like(tensor, name), name, process_set, wait=False, root_rank=root_rank)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`broadcast_`.

    Args:
        tensor, root_rank, name, process_set: as of :func:`broadcast_`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`allreduce`.

    Example:
        >>> hvd.synchronize(hvd.broadcast_async_(torch.tensor([2]), root_rank=0))
        tensor([2])
    """
    return submit("broadcast", tensor, tensor, name, process_set, wait=False, root_rank=root_rank)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Copy a tensor as :func:`broadcast`, but into ``tensor`` itself. Not recorded by autograd.

    Args:
        tensor: as of :func:`broadcast`; it is overwritten.
        root_rank, name, process_set: as of :func:`broadcast`.

    Returns:
        ``tensor``.

    Raises:
        ValueError, TypeError, HorovodInternalError: as :func:`broadcast`.

    Example:
        >>> hvd.broadcast_(torch.tensor([2]), root_rank=0)
        tensor([2])
    """
    if in_graph():
        return write_into(tensor, broadcast(tensor.detach(), root_rank, name, process_set))
    return synchronize(submit("broadcast", tensor, tensor, name, process_set, wait=True, root_rank=root_rank))


class HorovodBroadcast(torch.autograd.Function):
    """Broadcast whose gradient is the averaged gradient on the root, and zero elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(
            submit("broadcast", tensor, empty_like(tensor, name), name, process_set, wait=True, root_rank=root_rank)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        averaged = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        return averaged if _job.rank() == ctx.root_rank else torch.zeros_like(averaged), None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Copy the ``tensor`` of one rank to all ranks of ``process_set``. Blocks. The result is differentiable.

    Args:
        tensor: shape and dtype must be the same on all ranks.
        root_rank: the rank whose tensor it is, a rank of the world; the same on all ranks.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        The root's tensor.

    Raises:
        ValueError: the root is not in the set; or as :func:`allreduce`.
        TypeError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.broadcast(torch.tensor([1.5]), root_rank=0)
        tensor([1.5000])
    """
    if in_graph():
        return _graph.broadcast(tensor, root_rank, name, process_set_id(process_set))
    if needs_grad(tensor):
        return HorovodBroadcast.apply(tensor, root_rank, name, process_set)
    output = empty_like(tensor, name)
    return synchronize(submit("broadcast", tensor, output, name, process_set, wait=True, root_rank=root_rank))


# ---- reduce


def _reduce_async(
    tensor: torch.Tensor,
    in_place: bool,
    root_rank: int,
    name: Optional[str],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    wait: bool,
) -> int:
    check_known_op(op)
    if op not in _facts.kinds()["reduce"].reduce_ops:
        raise NotImplementedError("The Adasum reduction is not supported for reduce.")
    arguments = (name, process_set, wait, op, prescale_factor, postscale_factor, root_rank)
    if _job.rank() == root_rank:
        return submit("reduce", tensor, tensor if in_place else empty_like(tensor, name), *arguments)
    engine_dtype(tensor, name)
    result = tensor if in_place else tensor.detach().clone()
    return submit("reduce", tensor, None, *arguments, get=lambda _: result)


def reduce_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`reduce`.

    Args:
        tensor, root_rank, name, op, prescale_factor, postscale_factor, process_set: as of :func:`reduce`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`reduce`.

    Example:
        >>> hvd.synchronize(hvd.reduce_async(torch.tensor([2]), root_rank=0))
        tensor([2])
    """
    return _reduce_async(tensor, False, root_rank, name, op, prescale_factor, postscale_factor, process_set, False)


def reduce_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`reduce_`.

    Args:
        tensor, root_rank, name, op, prescale_factor, postscale_factor, process_set: as of :func:`reduce_`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`reduce`.

    Example:
        >>> hvd.synchronize(hvd.reduce_async_(torch.tensor([2]), root_rank=0))
        tensor([2])
    """
    return _reduce_async(tensor, True, root_rank, name, op, prescale_factor, postscale_factor, process_set, False)


@between_graphs
def reduce_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce a tensor as :func:`reduce`, but into ``tensor`` itself on the root. Not recorded by autograd.

    Args:
        tensor: as of :func:`reduce`; it is overwritten on the root, and stays as it is on the other ranks.
        root_rank, name, op, prescale_factor, postscale_factor, process_set: as of :func:`reduce`.

    Returns:
        ``tensor``.

    Raises:
        ValueError, TypeError, NotImplementedError, HorovodInternalError: as :func:`reduce`.

    Example:
        >>> hvd.reduce_(torch.tensor([2]), root_rank=0)
        tensor([2])
    """
    arguments = (root_rank, name, op, prescale_factor, postscale_factor, process_set)
    return synchronize(_reduce_async(tensor, True, *arguments, wait=True))


class HorovodReduce(torch.autograd.Function):
    """Reduce whose gradient is that of the root's result, for all ranks; what others do with theirs does not count."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        root_rank: int,
        name: Optional[str],
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.arguments = (root_rank, op, prescale_factor * postscale_factor, process_set)
        arguments = (root_rank, name, op, prescale_factor, postscale_factor, process_set)
        return synchronize(_reduce_async(tensor, False, *arguments, wait=True))

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        root_rank, op, factor, process_set = ctx.arguments
        if op not in (Average, Sum):
            raise NotImplementedError("only reductions with Average and Sum to one rank are differentiable")
        if op == Average:
            factor /= process_set.size() or 1
        grad = broadcast(grad_output.contiguous(), root_rank, process_set=process_set)
        return grad * factor, None, None, None, None, None, None


@between_graphs
def reduce(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce ``tensor`` elementwise over the ranks of ``process_set``, for one of them. Blocks.

    With Average and Sum the root's result is differentiable. Then all ranks call ``backward``, and each gets the
    gradient that the root has; what the other ranks compute from their results does not count. A rank that has joined
    takes part with zeros.

    Args:
        tensor: shape and dtype must be the same on all ranks. It must be contiguous.
        root_rank: the rank that gets the result, a rank of the world; the same on all ranks.
        name: by which ranks match their calls.
        op: Average, Sum, Min, Max or Product; the same on all ranks.
        prescale_factor, postscale_factor: multiply each element before and after the reduction; the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The reduced tensor on the root, and a copy of ``tensor`` on the other ranks.

    Raises:
        ValueError: the root is not in the set; or as :func:`allreduce`.
        NotImplementedError: ``op`` is Adasum. In ``backward``: it is not Average or Sum.
        HorovodInternalError: the root has joined; or as :func:`allreduce`.
        TypeError: as :func:`allreduce`.

    Example:
        >>> hvd.reduce(torch.tensor([1.0, 3.0]), root_rank=0)
        tensor([1., 3.])
    """
    arguments = (root_rank, name, op, prescale_factor, postscale_factor, process_set)
    if needs_grad(tensor):
        return HorovodReduce.apply(tensor, *arguments)
    return synchronize(_reduce_async(tensor, False, *arguments, wait=True))


# ---- alltoall

Splits = Union[torch.Tensor, Sequence[int], None]


def _rows_to_each(splits: Splits) -> list[int]:
    if splits is None:
        return []
    if isinstance(splits, torch.Tensor):
        if splits.dim() > 1:
            raise ValueError("alltoall expects a 1D splits tensor")
        if splits.dtype is not torch.int32:
            raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
        return splits.reshape(-1).tolist()
    try:
        return [operator.index(rows) for rows in splits]
    except TypeError as e:
        raise ValueError(f"alltoall expects splits to be a sequence of integers: {e}") from e


def _alltoall_async(
    tensor: torch.Tensor, splits: Splits, name: Optional[str], process_set: ProcessSet, wait: bool
) -> int:
    rows = _rows_to_each(splits)
    return submit("alltoall", tensor, None, name, process_set, wait, get=rows_and_splits, splits=rows)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`alltoall`. :func:`synchronize` returns the received splits too, always.

    Args:
        tensor, splits, name, process_set: as of :func:`alltoall`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`alltoall`.

    Example:
        >>> hvd.synchronize(hvd.alltoall_async(torch.tensor([4, 5])))
        (tensor([4, 5]), tensor([2], dtype=torch.int32))
    """
    return _alltoall_async(tensor, splits, name, process_set, wait=False)


class HorovodAlltoall(torch.autograd.Function):
    """Alltoall whose gradient goes back the way that the rows have come."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: Optional[str], process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = synchronize(_alltoall_async(tensor, splits, name, process_set, wait=True))
        ctx.process_set = process_set
        ctx.rows = tensor.shape[0]
        ctx.received = received
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor, _: Any) -> tuple[Optional[torch.Tensor], ...]:
        grad, _ = alltoall(grad_output.contiguous(), splits=ctx.received, process_set=ctx.process_set)
        if grad.shape[0] < ctx.rows:  # the splits left rows at the end unsent
            grad = torch.cat((grad, grad.new_zeros((ctx.rows - grad.shape[0], *grad.shape[1:]))))
        return grad, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Send rows of ``tensor`` to each rank of ``process_set``. Blocks. The received rows are differentiable.

    Args:
        tensor: dtype and the other dimensions must be the same on all ranks.
        splits: how many rows of the first dimension go to each rank: a sequence, or an int32 tensor of one dimension;
            what is left at the end stays here. None sends equal parts.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        The rows received, by sender; with ``splits`` also an int32 tensor of the number of rows received from each
        rank.

    Raises:
        ValueError: the splits do not fit, the first dimension cannot be divided equally; or as :func:`allreduce`.
        TypeError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.alltoall(torch.tensor([4, 5]))
        tensor([4, 5])
    """
    if in_graph():
        rows = splits
        if splits is not None and not isinstance(splits, torch.Tensor):
            rows = torch.tensor(list(splits), dtype=torch.int32)
        output, received = _graph.alltoall(tensor, rows, name, process_set_id(process_set))
    elif needs_grad(tensor):
        output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)
    else:
        output, received = synchronize(_alltoall_async(tensor, splits, name, process_set, wait=True))
    return output if splits is None else (output, received)


# ---- reducescatter


def check_scattered(tensor: torch.Tensor) -> None:
    """Raise ValueError if ``tensor`` has no rows."""
    if isinstance(tensor, torch.Tensor) and tensor.dim() == 0:
        raise ValueError("reducescatter does not support scalar inputs.")


def _reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str],
    op: int,
    process_set: ProcessSet,
    prescale_factor: float,
    postscale_factor: float,
    wait: bool,
) -> int:
    check_scattered(tensor)
    check_known_op(op)
    output = empty_share(tensor, process_set, name)
    return submit("reducescatter", tensor, output, name, process_set, wait, op, prescale_factor, postscale_factor)


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start :func:`reducescatter`.

    Args:
        tensor, name, op, process_set, prescale_factor, postscale_factor: as of :func:`reducescatter`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`reducescatter`.

    Example:
        >>> hvd.synchronize(hvd.reducescatter_async(torch.tensor([1.0, 2.0])))
        tensor([1., 2.])
    """
    return _reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor, wait=False)


def scattered_gradient_factor(op: int, prescale: float, postscale: float, process_set: ProcessSet) -> float:
    """By what the gradient of a reducescatter is multiplied before it is gathered."""
    return prescale * postscale * ((process_set.size() or 1) if op == Sum else 1)


class HorovodReducescatter(torch.autograd.Function):
    """Reducescatter whose gradient is gathered from all ranks; that of a sum is multiplied by their number."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: Optional[str],
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
    ) -> torch.Tensor:
        ctx.process_set = process_set
        ctx.factor = scattered_gradient_factor(op, prescale_factor, postscale_factor, process_set)
        return synchronize(
            _reducescatter_async(tensor, name, op, process_set, prescale_factor, postscale_factor, wait=True)
        )

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        grad = allgather((grad_output * ctx.factor).contiguous(), process_set=ctx.process_set)
        return grad, None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduce ``tensor`` over the ranks of ``process_set``, and give each rank its rows. Blocks. Differentiable.

    The rows of the first dimension are dealt out in order; where they cannot be divided equally, the first ranks get
    one more.

    Args:
        tensor: as of :func:`allreduce`, with at least one dimension.
        name: by which ranks match their calls.
        compression: what compresses the tensor before, and decompresses it after.
        op: Average or Sum.
        prescale_factor: each element is multiplied by it before; on integers in double precision, and truncated.
        postscale_factor: the same, after.
        process_set: the ranks that take part.

    Returns:
        This rank's rows of the result.

    Raises:
        ValueError: the tensor has no dimension; or as :func:`allreduce`.
        TypeError: what is given is no tensor.
        HorovodInternalError: another ``op``; the ranks disagree, or one of them is gone.

    Example:
        >>> hvd.reducescatter(torch.tensor([1.0, 2.0]), op=hvd.Sum)
        tensor([1., 2.])
    """
    compressed, ctx = compression.compress(tensor)
    arguments = (name, op, process_set, prescale_factor, postscale_factor)
    if in_graph():
        check_scattered(compressed)
        scattered = _graph.reducescatter(
            compressed, name, op, float(prescale_factor), float(postscale_factor), process_set_id(process_set)
        )
    elif needs_grad(compressed):
        check_scattered(compressed)
        scattered = HorovodReducescatter.apply(compressed, *arguments)
    else:
        scattered = synchronize(_reducescatter_async(compressed, *arguments, wait=True))
    return compression.decompress(scattered, ctx)


# ---- sparse allreduce


@between_graphs
def sparse_allreduce_async(
    tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start to add up sparse COO tensors of all ranks. Indices and values are gathered.

    Args:
        tensor: of layout ``torch.sparse_coo``; size, dtype and number of sparse dimensions must be the same on all
            ranks.
        name: by which ranks match their calls.
        op: Average; any other is a sum.
        process_set: the ranks that take part.

    Returns:
        A function that waits for the sum and returns it. The sum is not coalesced.

    Raises:
        ValueError: the tensor has another layout; or as :func:`allreduce`.

    Example:
        >>> x = torch.sparse_coo_tensor([[1]], [5.0], (3,))
        >>> hvd.sparse_allreduce_async(x, name="x", op=hvd.Sum)().to_dense()
        tensor([0., 5., 0.])
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        kind = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(f"sparse_allreduce needs a tensor of layout torch.sparse_coo, not {kind}")
    tensor = tensor.detach().coalesce()
    results = [
        Result(submit("allgather", part.contiguous(), None, part_name, process_set, wait=False))
        for part, part_name in [
            (tensor.indices().t(), None if name is None else f"{name}.indices"),
            (tensor.values(), None if name is None else f"{name}.values"),
        ]
    ]

    def total() -> torch.Tensor:
        for result in results:
            with contextlib.suppress(Exception):
                result()  # both must end, whatever becomes of the first
        indices, values = (result() for result in results)
        if op == Average:
            values = values / process_set.size()
        return torch.sparse_coo_tensor(indices.t(), values, tensor.size())

    return total


# ---- barrier, join


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of ``process_set`` has called this.

    Args:
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: a rank cannot, because it is gone.

    Example:
        >>> hvd.barrier()
    """
    synchronize(submit_without_tensor(_lib.BARRIER, process_set))


joins_ended = 0  # of this process's


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and wait until all ranks have said so.

    Meanwhile this rank takes part in the allreduces of the others with zeros; averages are still divided by the number
    of all ranks. Their other operations fail unless GOROVOD_JOIN_ALL_OPS=1 is set.

    Args:
        device: where Horovod makes these zeros; it has no meaning here.

    Returns:
        The rank that has joined last.

    Raises:
        HorovodInternalError: a rank is gone.

    Example:
        >>> hvd.join()
        0
    """
    global joins_ended
    last = synchronize(submit_without_tensor(_lib.JOIN, global_process_set, last_joined))
    joins_ended += 1
    return last
