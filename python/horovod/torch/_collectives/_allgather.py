"""Concatenating the tensors of all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch

from horovod.common._reduce_ops import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._collectives._allreduce import allreduce
from horovod.torch._collectives._common import needs_grad
from horovod.torch._graph import in_graph
from horovod.torch._submission import collect, process_set_id, submit


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`allgather`.

    Args:
        tensor, name, process_set: as for :func:`allgather`.

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
        return collect("allgather", tensor, name, process_set)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        averaged = allreduce(grad_output.contiguous(), op=Average, process_set=ctx.process_set)
        rows = allgather(torch.tensor([ctx.rows], device="cpu"), process_set=ctx.process_set)
        start = int(rows[: ctx.process_set.rank()].sum())
        return averaged.narrow(0, start, ctx.rows), None, None


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenate ``tensor`` of all ranks along its first dimension, in the order of ranks. Blocks. Differentiable.

    Args:
        tensor: dtype and the other dimensions must be equal on all ranks; the first may differ and may be 0.
        name: the name by which ranks match their calls.
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
    return collect("allgather", tensor, name, process_set)
