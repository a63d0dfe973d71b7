"""Reducing a tensor over all ranks, for all of them."""

from __future__ import annotations

from typing import Any, Optional

import torch

from horovod.common._reduce_ops import handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._collectives._common import check_reduce_op, needs_grad, write_into
from horovod.torch._compiling import traces_bytecode
from horovod.torch._graph import in_graph
from horovod.torch._submission import complete, empty_like, native, process_set_id, submit, synchronize
from horovod.torch.compression import Compression, Compressor, prepare, wire_of


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
        tensor: as for :func:`allreduce`.
        name: the name by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as for :func:`allreduce`.

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
        tensor: as for :func:`allreduce`; it is overwritten.
        name: the name by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as for :func:`allreduce`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`allreduce`.

    Example:
        >>> handle = hvd.allreduce_async_(torch.tensor([3.0]), name="x")
        >>> hvd.synchronize(handle)
        tensor([3.])
    """
    if native is not None and average is None and not traces_bytecode():
        handle = native.submit(
            "allreduce", tensor, tensor, name, process_set, op, prescale_factor, postscale_factor, 0, 0, False
        )  # fmt: skip
        if handle is not None:
            return handle
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
        tensor: as for :func:`allreduce`; it is overwritten.
        name: the name by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as for :func:`allreduce`.

    Returns:
        ``tensor``.

    Raises:
        ValueError, TypeError, NotImplementedError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> x = torch.tensor([1.0, 2.0])
        >>> hvd.allreduce_(x, op=hvd.Sum) is x
        True
    """
    if native is not None and average is None and not traces_bytecode():
        result = native.run(
            "allreduce", tensor, tensor, name, process_set, op, prescale_factor, postscale_factor, 0, 0
        )  # fmt: skip
        if result is not None:
            return synchronize(result) if type(result) is int else result
    op = handle_average_backwards_compatibility(op, average)
    if in_graph():
        arguments = (None, name, Compression.none, op, prescale_factor, postscale_factor, process_set)
        return write_into(tensor, allreduce(tensor.detach(), *arguments))
    check_reduce_op(op, process_set)
    return complete("allreduce", tensor, tensor, name, process_set, op, prescale_factor, postscale_factor)


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
        arguments = (tensor, empty_like(tensor, name), name, process_set, op, prescale_factor, postscale_factor)
        return complete("allreduce", *arguments, wire=wire)

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
    ``name``. Calls without a name are numbered, by one count of the set's allreduces: all ranks of the set must make
    them in the same order.

    Args:
        tensor: dense and contiguous; uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32, float64 or
            bool.
        average: deprecated form of ``op``: True is Average, False is Sum.
        name: the name by which ranks match their calls. Calls without a name are matched by their number.
        compression: how the tensor travels, see :class:`Compression`.
        op: Average (default), Sum, Min, Max, Product or, on floating-point tensors of all ranks, Adasum
            (arXiv:2006.02924).
        prescale_factor: each element is multiplied by it before the reduction; on integers in double precision, and
            truncated.
        postscale_factor: each element is multiplied by it after the reduction.
        process_set: the ranks that take part.

    Returns:
        The result, the same on all ranks.

    Raises:
        ValueError: the tensor is not contiguous, is of another dtype, or its name is in use.
        TypeError: ``tensor`` is no tensor.
        NotImplementedError: Adasum on a part of the ranks.
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
        arguments = (compressed, output, name, process_set, op, prescale_factor, postscale_factor)
        reduced = complete("allreduce", *arguments, wire=wire)
    return compression.decompress(reduced, ctx)
