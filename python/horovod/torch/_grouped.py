"""Collectives on many tensors in one call.

The tensors of a group start together, when all of them are ready on every rank. Each is named after its place in the
group, ``grouped_<op>.<name>_<i>of<n>``, so groups may be submitted in any order.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from horovod.common._reduce_ops import Average, handle_average_backwards_compatibility
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._collectives import allgather
from horovod.torch._collectives._common import check_reduce_op, needs_grad, write_into
from horovod.torch._collectives._reducescatter import check_scattered, scattered_gradient_factor
from horovod.torch._compiling import between_graphs
from horovod.torch._graph import in_graph
from horovod.torch._submission import empty_like, empty_share, process_set_id, submit_group, synchronize
from horovod.torch.compression import Compression, Compressor, compress, prepare, wire_of

Tensors = Sequence[torch.Tensor]


# What users see, as in _collectives.
__all__ = [
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
]


def _compress(compression: type[Compressor], tensors: Tensors) -> tuple[list[torch.Tensor], list]:
    pairs = [compress(compression, tensor) for tensor in tensors]
    return [tensor for tensor, _ in pairs], [ctx for _, ctx in pairs]


def _decompress(compression: type[Compressor], tensors: Tensors, ctxs: list) -> list[torch.Tensor]:
    return [compression.decompress(tensor, ctx) for tensor, ctx in zip(tensors, ctxs)]


# ---- allreduce


def submit_grouped_allreduce(
    tensors: Tensors,
    in_place: bool,
    name: Optional[str],
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    wait: bool,
    wires: Optional[Sequence[int]] = None,
    names: Optional[Sequence[str]] = None,
) -> int:
    """As :func:`grouped_allreduce_async`; ``wires``, ``names`` and ``wait`` as in :func:`submit_group`."""
    check_reduce_op(op, process_set)
    tensors = list(tensors)
    outputs = tensors if in_place else [empty_like(tensor, name) for tensor in tensors]
    return submit_group(
        "allreduce", tensors, outputs, name, process_set, wait, op, prescale_factor, postscale_factor, wires, names
    )


def grouped_allreduce_async(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`grouped_allreduce`. The tensors must not change before the end. Not recorded by autograd.

    Args:
        tensors, name: as for :func:`grouped_allreduce`.
        average, op, prescale_factor, postscale_factor, process_set: as for :func:`grouped_allreduce`.

    Returns:
        One handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`allreduce`.

    Example:
        >>> hvd.synchronize(hvd.grouped_allreduce_async([torch.tensor([1.0])]))
        [tensor([1.])]
    """
    op = handle_average_backwards_compatibility(op, average)
    return submit_grouped_allreduce(
        tensors, False, name, op, prescale_factor, postscale_factor, process_set, wait=False
    )


def grouped_allreduce_async_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`grouped_allreduce_`. The tensors must not change before the end. Not recorded by autograd.

    Args:
        tensors, name: as for :func:`grouped_allreduce_`.
        average, op, prescale_factor, postscale_factor, process_set: as for :func:`grouped_allreduce_`.

    Returns:
        One handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError, NotImplementedError: as :func:`allreduce`.

    Example:
        >>> hvd.synchronize(hvd.grouped_allreduce_async_([torch.tensor([1.0])]))
        [tensor([1.])]
    """
    op = handle_average_backwards_compatibility(op, average)
    return submit_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set, wait=False)


def grouped_allreduce_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce many tensors as :func:`grouped_allreduce`, but into the tensors themselves. Not recorded by autograd.

    Args:
        tensors: as for :func:`grouped_allreduce`; they are overwritten.
        name: the name by which ranks match their calls.
        average, op, prescale_factor, postscale_factor, process_set: as for :func:`grouped_allreduce`.

    Returns:
        The list of the tensors.

    Raises:
        ValueError, TypeError, NotImplementedError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.grouped_allreduce_([torch.tensor([1.0]), torch.tensor([2.0])])
        [tensor([1.]), tensor([2.])]
    """
    op = handle_average_backwards_compatibility(op, average)
    if in_graph():
        tensors = list(tensors)
        arguments = (None, name, Compression.none, op, prescale_factor, postscale_factor, process_set)
        reduced = grouped_allreduce([tensor.detach() for tensor in tensors], *arguments)
        return [write_into(tensor, result) for tensor, result in zip(tensors, reduced)]
    return synchronize(
        submit_grouped_allreduce(tensors, True, name, op, prescale_factor, postscale_factor, process_set, wait=True)
    )


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Grouped allreduce whose gradient is the grouped allreduce of the gradients, with the same op and factors."""

    @staticmethod
    def forward(
        ctx: Any,
        name: Optional[str],
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        compression: type[Compressor],
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set, compression)
        wires = [wire_of(compression, tensor, op) for tensor in tensors]
        return tuple(
            synchronize(
                submit_grouped_allreduce(
                    tensors, False, name, op, prescale_factor, postscale_factor, process_set, True, wires
                )
            )
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        op, prescale_factor, postscale_factor, process_set, compression = ctx.arguments
        grads = grouped_allreduce(
            [grad.contiguous() for grad in grad_outputs],
            compression=compression,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            process_set=process_set,
        )
        return (None, None, None, None, None, None, *grads)


def grouped_allreduce(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Reduce many tensors at once, each as :func:`allreduce`. They start when all are ready on every rank. Blocks.

    If one tensor is wrong, the whole call fails, after all have ended. The results are differentiable.

    Args:
        tensors: a list of tensors, which may differ in shape and dtype; all ranks give as many, in the same order.
        average: deprecated form of ``op``: True is Average, False is Sum.
        name: the name by which ranks match their calls. Calls without a name are matched by their number.
        compression: how the tensors travel, see :class:`Compression`.
        op: Average (default), Sum, Min, Max, Product or, on floating-point tensors of all ranks, Adasum.
        prescale_factor: each element is multiplied by it before the reduction; on integers in double precision, and
            truncated.
        postscale_factor: each element is multiplied by it after the reduction.
        process_set: the ranks that take part.

    Returns:
        The list of the results.

    Raises:
        ValueError, TypeError, NotImplementedError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.grouped_allreduce([torch.tensor([1.0]), torch.tensor([2, 3])], op=hvd.Sum)
        [tensor([1.]), tensor([2, 3])]
    """
    op = handle_average_backwards_compatibility(op, average)
    prepared = [prepare(compression, tensor, op) for tensor in tensors]
    compressed, ctxs, wires = ([one[i] for one in prepared] for i in range(3))
    if in_graph():
        check_reduce_op(op, process_set)
        factors = float(prescale_factor), float(postscale_factor)
        reduced = _graph.grouped_allreduce(compressed, name, op, *factors, wires, process_set_id(process_set))
    elif any(map(needs_grad, compressed)):
        rest = compression if any(wires) else Compression.none
        reduced = HorovodGroupedAllreduce.apply(
            name, op, prescale_factor, postscale_factor, process_set, rest, *compressed
        )
    else:
        reduced = synchronize(
            submit_grouped_allreduce(
                compressed, False, name, op, prescale_factor, postscale_factor, process_set, True, wires
            )
        )
    return _decompress(compression, reduced, ctxs)


# ---- allgather


def _grouped_allgather_async(tensors: Tensors, name: Optional[str], process_set: ProcessSet, wait: bool) -> int:
    tensors = list(tensors)
    return submit_group("allgather", tensors, [None] * len(tensors), name, process_set, wait)


def grouped_allgather_async(
    tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`grouped_allgather`.

    Args:
        tensors, name, process_set: as for :func:`grouped_allgather`.

    Returns:
        One handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`allgather`.

    Example:
        >>> hvd.synchronize(hvd.grouped_allgather_async([torch.tensor([1])]))
        [tensor([1])]
    """
    return _grouped_allgather_async(tensors, name, process_set, wait=False)


class HorovodGroupedAllgather(torch.autograd.Function):
    """Grouped allgather whose gradients are this rank's rows of the averaged gradients."""

    @staticmethod
    def forward(
        ctx: Any, name: Optional[str], process_set: ProcessSet, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() else 1 for tensor in tensors]
        return tuple(synchronize(_grouped_allgather_async(tensors, name, process_set, wait=True)))

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        averaged = grouped_allreduce(
            [grad.contiguous() for grad in grad_outputs], op=Average, process_set=ctx.process_set
        )
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=ctx.process_set)
        starts = rows[: ctx.process_set.rank()].sum(0).tolist()
        grads = [grad.narrow(0, start, n) for grad, start, n in zip(averaged, starts, ctx.rows)]
        return (None, None, *grads)


@between_graphs
def grouped_allgather(
    tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Gather many tensors at once, each as :func:`allgather`. Blocks. The results are differentiable.

    Args:
        tensors: a list of tensors, which may differ in shape and dtype; all ranks give as many, in the same order.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        The list of the results.

    Raises:
        ValueError, TypeError, HorovodInternalError: as :func:`allgather`.

    Example:
        >>> hvd.grouped_allgather([torch.tensor([1]), torch.tensor([2, 3])])
        [tensor([1]), tensor([2, 3])]
    """
    if any(map(needs_grad, tensors)):
        return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))
    return synchronize(_grouped_allgather_async(tensors, name, process_set, wait=True))


# ---- reducescatter


def _grouped_reducescatter_async(
    tensors: Tensors,
    name: Optional[str],
    op: int,
    process_set: ProcessSet,
    prescale_factor: float,
    postscale_factor: float,
    wait: bool,
) -> int:
    tensors = list(tensors)
    for tensor in tensors:
        check_scattered(tensor, op)
    outputs = [empty_share(tensor, process_set, name) for tensor in tensors]
    return submit_group(
        "reducescatter", tensors, outputs, name, process_set, wait, op, prescale_factor, postscale_factor
    )


def grouped_reducescatter_async(
    tensors: Tensors,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start :func:`grouped_reducescatter`.

    Args:
        tensors, name, op, process_set, prescale_factor, postscale_factor: as for :func:`grouped_reducescatter`.

    Returns:
        One handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`reducescatter`.

    Example:
        >>> hvd.synchronize(hvd.grouped_reducescatter_async([torch.tensor([1.0])]))
        [tensor([1.])]
    """
    return _grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor, wait=False)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """Grouped reducescatter whose gradients are gathered; those of a sum are multiplied by the number of ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        name: Optional[str],
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.process_set = process_set
        ctx.factor = scattered_gradient_factor(op, prescale_factor, postscale_factor, process_set)
        return tuple(
            synchronize(
                _grouped_reducescatter_async(
                    tensors, name, op, process_set, prescale_factor, postscale_factor, wait=True
                )
            )
        )

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        grads = grouped_allgather(
            [(grad * ctx.factor).contiguous() for grad in grad_outputs], process_set=ctx.process_set
        )
        return (None, None, None, None, None, *grads)


@between_graphs
def grouped_reducescatter(
    tensors: Tensors,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Reduce and deal out many tensors at once, each as :func:`reducescatter`. Blocks. The results are differentiable.

    Args:
        tensors: a list of tensors, which may differ in shape and dtype; all ranks give as many, in the same order.
        name: the name by which ranks match their calls.
        compression: a compressor, which works before and after the operation.
        op: Average or Sum.
        prescale_factor: each element is multiplied by it before the reduction; on integers in double precision, and
            truncated.
        postscale_factor: each element is multiplied by it after the reduction.
        process_set: the ranks that take part.

    Returns:
        The list of the results.

    Raises:
        ValueError, TypeError, HorovodInternalError: as :func:`reducescatter`.

    Example:
        >>> hvd.grouped_reducescatter([torch.tensor([1.0]), torch.tensor([2.0])], op=hvd.Sum)
        [tensor([1.]), tensor([2.])]
    """
    compressed, ctxs = _compress(compression, tensors)
    arguments = (name, op, process_set, prescale_factor, postscale_factor)
    if any(map(needs_grad, compressed)):
        for tensor in compressed:
            check_scattered(tensor, op)
        scattered = HorovodGroupedReducescatter.apply(*arguments, *compressed)
    else:
        scattered = synchronize(_grouped_reducescatter_async(compressed, *arguments, wait=True))
    return _decompress(compression, scattered, ctxs)
