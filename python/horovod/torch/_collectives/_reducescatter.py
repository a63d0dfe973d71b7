"""Reducing a tensor over all ranks, and giving each rank its rows."""

from __future__ import annotations

from typing import Any, Optional

import torch

from horovod.common._reduce_ops import SCATTER_OPS, Average, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._collectives._allgather import allgather
from horovod.torch._collectives._common import check_known_op, needs_grad
from horovod.torch._graph import in_graph
from horovod.torch._submission import complete, empty_share, process_set_id, submit, synchronize
from horovod.torch.compression import Compression, Compressor, compress


def check_scattered(tensor: torch.Tensor, op: int) -> None:
    """Raise ValueError if ``tensor`` has no rows, HorovodInternalError for a tensor that Horovod cannot scatter."""
    if isinstance(tensor, torch.Tensor) and tensor.dim() == 0:
        raise ValueError("reducescatter does not support scalar inputs.")
    check_known_op(op)
    if op not in SCATTER_OPS:
        raise HorovodInternalError("Reducescatter currently only supports AVERAGE and SUM.")


def _reducescatter(
    tensor: torch.Tensor,
    name: Optional[str],
    op: int,
    process_set: ProcessSet,
    prescale_factor: float,
    postscale_factor: float,
) -> torch.Tensor:
    check_scattered(tensor, op)
    output = empty_share(tensor, process_set, name)
    reduction = (op, prescale_factor, postscale_factor)
    if output is None:  # this process is no member
        return synchronize(submit("reducescatter", tensor, None, name, process_set, True, *reduction))
    return complete("reducescatter", tensor, output, name, process_set, *reduction)


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
        tensor, name, op, process_set, prescale_factor, postscale_factor: as for :func:`reducescatter`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`reducescatter`.

    Example:
        >>> hvd.synchronize(hvd.reducescatter_async(torch.tensor([1.0, 2.0])))
        tensor([1., 2.])
    """
    check_scattered(tensor, op)
    output = empty_share(tensor, process_set, name)
    return submit("reducescatter", tensor, output, name, process_set, False, op, prescale_factor, postscale_factor)


def scattered_gradient_factor(op: int, prescale: float, postscale: float, process_set: ProcessSet) -> float:
    """The factor of the gradient of a reducescatter before it is gathered."""
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
        return _reducescatter(tensor, name, op, process_set, prescale_factor, postscale_factor)

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

    The rows of the first dimension are dealt out in order; if they cannot be divided equally, the first ranks get one
    more.

    Args:
        tensor: as for :func:`allreduce`, with at least one dimension.
        name: the name by which ranks match their calls.
        compression: a compressor, which works before and after the operation.
        op: Average or Sum.
        prescale_factor: each element is multiplied by it before the reduction; on integers in double precision, and
            truncated.
        postscale_factor: each element is multiplied by it after the reduction.
        process_set: the ranks that take part.

    Returns:
        This rank's rows of the result.

    Raises:
        ValueError: the tensor has no dimension; or as :func:`allreduce`.
        TypeError: ``tensor`` is no tensor.
        HorovodInternalError: another ``op``; the ranks disagree, or one of them is gone.

    Example:
        >>> hvd.reducescatter(torch.tensor([1.0, 2.0]), op=hvd.Sum)
        tensor([1., 2.])
    """
    compressed, ctx = compress(compression, tensor)
    arguments = (name, op, process_set, prescale_factor, postscale_factor)
    if in_graph():
        check_scattered(compressed, op)
        scattered = _graph.reducescatter(
            compressed, name, op, float(prescale_factor), float(postscale_factor), process_set_id(process_set)
        )
    elif needs_grad(compressed):
        check_scattered(compressed, op)
        scattered = HorovodReducescatter.apply(compressed, *arguments)
    else:
        scattered = _reducescatter(compressed, *arguments)
    return compression.decompress(scattered, ctx)
