"""Copying a tensor of one rank to all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch

from horovod.common import _job
from horovod.common._reduce_ops import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._collectives._allreduce import allreduce
from horovod.torch._collectives._common import needs_grad, write_into
from horovod.torch._graph import in_graph
from horovod.torch._submission import complete, empty_like, process_set_id, submit


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start :func:`broadcast`.

    Args:
        tensor, root_rank, name, process_set: as for :func:`broadcast`.

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
        tensor, root_rank, name, process_set: as for :func:`broadcast_`.

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
        tensor: as for :func:`broadcast`; it is overwritten.
        root_rank, name, process_set: as for :func:`broadcast`.

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
    return complete("broadcast", tensor, tensor, name, process_set, root_rank=root_rank)


class HorovodBroadcast(torch.autograd.Function):
    """Broadcast whose gradient is the averaged gradient on the root, and zero elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str], process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return complete("broadcast", tensor, empty_like(tensor, name), name, process_set, root_rank=root_rank)

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
        root_rank: the rank whose tensor all ranks get, a rank of the world; the same on all ranks.
        name: the name by which ranks match their calls.
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
    return complete("broadcast", tensor, output, name, process_set, root_rank=root_rank)
