"""The code that collectives share: checks, and operations in place in a graph."""

from __future__ import annotations

import torch

from horovod.common._reduce_ops import ALLREDUCE_OPS, Adasum
from horovod.common.process_sets import ProcessSet

_PLAIN_OPS = ALLREDUCE_OPS - {Adasum}


def check_known_op(op: int) -> None:
    """Raise ValueError unless ``op`` is a reduce operation."""
    if op not in ALLREDUCE_OPS:
        raise ValueError(f"unknown reduce operation {op!r}; use Average, Sum, Adasum, Min, Max or Product.")


def check_reduce_op(op: int, process_set: ProcessSet) -> None:
    """As :func:`check_known_op`; NotImplementedError for Adasum on a part of the ranks."""
    if op in _PLAIN_OPS:
        return
    check_known_op(op)
    if op == Adasum and getattr(process_set, "process_set_id", None) != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")


def needs_grad(tensor: torch.Tensor) -> bool:
    """Whether autograd records operations on ``tensor``."""
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and torch.is_grad_enabled()


def write_into(tensor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """An operation in place, in a graph: there the compiler decides which memory to use."""
    tensor.detach().copy_(result)
    return tensor
