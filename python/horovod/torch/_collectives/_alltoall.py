"""Sending rows of a tensor from each rank to each rank."""

from __future__ import annotations

import operator
from typing import Any, Optional, Sequence, Union

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import _graph
from horovod.torch._collectives._common import needs_grad
from horovod.torch._graph import in_graph
from horovod.torch._operation import rows_and_splits
from horovod.torch._submission import collect, process_set_id, submit

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


def _collect(
    tensor: torch.Tensor, splits: Splits, name: Optional[str], process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    return collect("alltoall", tensor, name, process_set, rows_and_splits, _rows_to_each(splits))


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start :func:`alltoall`. :func:`synchronize` always returns the received splits, too.

    Args:
        tensor, splits, name, process_set: as for :func:`alltoall`.

    Returns:
        A handle for :func:`poll` and :func:`synchronize`.

    Raises:
        ValueError, TypeError: as :func:`alltoall`.

    Example:
        >>> hvd.synchronize(hvd.alltoall_async(torch.tensor([4, 5])))
        (tensor([4, 5]), tensor([2], dtype=torch.int32))
    """
    rows = _rows_to_each(splits)
    return submit("alltoall", tensor, None, name, process_set, False, get=rows_and_splits, splits=rows)


class HorovodAlltoall(torch.autograd.Function):
    """Alltoall whose gradient takes the rows' way back."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Splits, name: Optional[str], process_set: ProcessSet
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = _collect(tensor, splits, name, process_set)
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
            remaining rows at the end stay here. None sends equal parts.
        name: the name by which ranks match their calls.
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
            rows = torch.tensor(list(splits), dtype=torch.int32, device="cpu")
        output, received = _graph.alltoall(tensor, rows, name, process_set_id(process_set))
    elif needs_grad(tensor):
        output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)
    else:
        output, received = _collect(tensor, splits, name, process_set)
    return output if splits is None else (output, received)
