"""Reducing a tensor over all ranks, for one of them."""

from __future__ import annotations

from typing import Any, Optional

import torch

from horovod.common import _facts, _job
from horovod.common._reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._collectives._broadcast import broadcast
from horovod.torch._collectives._common import check_known_op, needs_grad
from horovod.torch._compiling import between_graphs
from horovod.torch._operation import Operation, follow
from horovod.torch._submission import check_empty, empty_like, engine_dtype, submit, synchronize


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
    if tensor.data_ptr() == 0:
        check_empty(tensor, name)  # PyTorch's clone of a tensor whose storage was freed ends the process
    result = tensor if in_place else tensor.detach().clone()

    def unchanged(operation: Operation) -> torch.Tensor:
        follow(operation)  # the caller may overwrite or free the tensor next
        return result

    return submit("reduce", tensor, None, *arguments, get=unchanged)


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
        tensor, root_rank, name, op, prescale_factor, postscale_factor, process_set: as for :func:`reduce`.

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
        tensor, root_rank, name, op, prescale_factor, postscale_factor, process_set: as for :func:`reduce_`.

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
        tensor: as for :func:`reduce`; it is overwritten on the root, and stays as it is on the other ranks.
        root_rank, name, op, prescale_factor, postscale_factor, process_set: as for :func:`reduce`.

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
    """Reduce whose gradient, on all ranks, is that of the root's result; other ranks' results have no gradient."""

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

    With Average and Sum the root's result is differentiable. Then all ranks must call ``backward``, and each gets the
    root's gradient; computations on the other ranks' results do not count. A rank that has joined takes part with
    zeros.

    Args:
        tensor: shape and dtype must be the same on all ranks. It must be contiguous.
        root_rank: the rank that gets the result, a rank of the world; the same on all ranks.
        name: the name by which ranks match their calls.
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
