"""Checks whether ranks have the same parameters."""

from __future__ import annotations

from functools import partial
from typing import Iterable, Mapping, Union

import torch

from horovod.common import _consistency
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import never_trace
from horovod.torch._submission import process_set_id
from horovod.torch.functions import allgather_object


def check_consistency(
    model: Union[torch.nn.Module, Mapping[str, torch.Tensor], Iterable[tuple[str, torch.Tensor]]],
    gradients: bool = False,
    buffers: bool = False,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Compare the parameters of all ranks of ``process_set``, bit for bit. All of them call this. Blocks.

    Each rank makes a digest of each tensor, at the speed of memory, and only digests travel.

    Args:
        model: a module, or tensors by name, such as ``model.state_dict()`` or ``model.named_parameters()``.
        gradients: also compare the gradients of a module's parameters, once they have been reduced.
        buffers: also compare a module's buffers. Running means of batch norms may differ rightly, unless they are those
            of ``hvd.SyncBatchNorm``.
        process_set: the ranks that take part.

    Raises:
        ConsistencyError: a tensor differs. The message names it, and the ranks whose values differ from the majority's.
        TypeError: ``model`` is anything else.
        HorovodInternalError: as :func:`allgather`.

    Example:
        >>> hvd.check_consistency(torch.nn.Linear(2, 1))
    """
    prints = {name: _fingerprint(tensor) for name, tensor in _tensors(model, gradients, buffers)}
    process_set_id(process_set)  # raises the right error
    gather = partial(allgather_object, process_set=process_set)
    _consistency.check(prints, _consistency.ranks_of(process_set), gather)


def _tensors(model: object, gradients: bool, buffers: bool) -> list[tuple[str, torch.Tensor]]:
    if isinstance(model, torch.nn.Module):
        parameters = list(model.named_parameters())
        tensors = [*parameters]
        if gradients:
            tensors += [(f"{name}.grad", p.grad) for name, p in parameters if p.grad is not None]
        if buffers:
            tensors += model.named_buffers()
        return tensors
    named = list(model.items() if isinstance(model, Mapping) else model if isinstance(model, Iterable) else [model])
    for item in named:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], torch.Tensor)):
            raise TypeError("model must be a torch.nn.Module, or tensors by name")
    return named


def _fingerprint(tensor: torch.Tensor) -> _consistency.Print:
    """A digest of the elements in their order, independent of how and where they are stored."""
    values = tensor.detach()
    if values.layout != torch.strided:
        values = values.to_dense()
    values = values.cpu().contiguous().resolve_conj().resolve_neg()
    kind = f"{str(tensor.dtype).rpartition('.')[2]} {list(tensor.shape)}"
    return _consistency.fingerprint(kind, values.data_ptr(), values.numel() * values.element_size())


never_trace(__name__)
