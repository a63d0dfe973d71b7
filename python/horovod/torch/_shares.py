"""Flat shares of tensors: what a sharded optimizer reduces and gathers.

A tensor of n elements, in the order of its memory, is dealt out to the N ranks of a process set: each gets n // N
elements, and the first n % N ranks get one more; see :func:`bounds`. So a share may be empty. Both operations are in
place, need no memory beside the tensor's, and fuse with others of their kind, dtype and reduce operation:

- :func:`scatter_async` reduces a tensor: this rank's share of it gets the result. The other shares stay as they are.
- :func:`gather_async` brings the share of every rank to all ranks.

Each is an ordinary reducescatter or allgather of a tensor with one dimension, so their names are
``reducescatter.<name>`` and ``allgather.<name>``. In deterministic mode (GOROVOD_DETERMINISTIC=1), and inside a host
always, a share has the bits that an allreduce of the tensor has there.
"""

from __future__ import annotations

from typing import Optional, Sequence

import torch

from horovod.common import _facts
from horovod.common._reduce_ops import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._collectives._reducescatter import check_scattered
from horovod.torch._compiling import never_trace
from horovod.torch._submission import engine_dtype, process_set_id, submit, submit_group


def bounds(elements: int, process_set: ProcessSet = global_process_set) -> tuple[int, int]:
    """The first of the elements that this rank gets, and the one behind the last.

    Raises ValueError if this process is no member of ``process_set``.
    """
    found = _facts.bounds(elements, process_set_id(process_set))
    if found is None:
        raise ValueError(f"this process is no member of {process_set}, so it has no share")
    return found


def share_of(tensor: torch.Tensor, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """This rank's share of a contiguous tensor: a view of one dimension."""
    return _whole_and_share(tensor, None, process_set)[1]


def _whole_and_share(
    tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    engine_dtype(tensor, name)  # it must be contiguous
    whole = tensor.detach().view(-1)
    begin, end = bounds(whole.numel(), process_set)
    return whole, whole[begin:end]


def scatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    wait: bool = False,
) -> int:
    """Start to reduce this rank's share of ``tensor``, in place, and return a handle. Its result is the share, a view.

    All ranks give tensors of one shape. ``op`` is Average or Sum; factors as for allreduce. ``wait``: the caller will
    wait for it at once.
    """
    whole, share = _whole_and_share(tensor, name, process_set)
    check_scattered(whole, op)
    return submit("reducescatter", whole, share, name, process_set, wait, op, prescale_factor, postscale_factor)


def gather_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    wait: bool = False,
) -> int:
    """Start to bring the shares of ``tensor`` to all ranks, in place, and return a handle.

    Its result is the tensor, as a view of one dimension. ``wait``: the caller will wait for it at once.
    """
    whole, share = _whole_and_share(tensor, name, process_set)
    return submit("allgather", share, None, name, process_set, wait, into=whole)


def grouped_scatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    wait: bool = False,
    names: Optional[Sequence[str]] = None,
) -> int:
    """As :func:`scatter_async`, for a list of tensors that start together. ``names``: see ``submit_group``."""
    wholes, shares = _lists(tensors, names, process_set)
    for whole in wholes:
        check_scattered(whole, op)
    factors = prescale_factor, postscale_factor
    return submit_group("reducescatter", wholes, shares, name, process_set, wait, op, *factors, names=names)


def grouped_gather_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    wait: bool = False,
    names: Optional[Sequence[str]] = None,
) -> int:
    """As :func:`gather_async`, for a list of tensors that start together. ``names``: see ``submit_group``."""
    wholes, shares = _lists(tensors, names, process_set)
    nothing = [None] * len(wholes)
    return submit_group("allgather", shares, nothing, name, process_set, wait, names=names, intos=wholes)


def _lists(
    tensors: Sequence[torch.Tensor], names: Optional[Sequence[str]], process_set: ProcessSet
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    pairs = [_whole_and_share(t, None if names is None else names[i], process_set) for i, t in enumerate(tensors)]
    return [whole for whole, _ in pairs], [share for _, share in pairs]


never_trace(__name__)
