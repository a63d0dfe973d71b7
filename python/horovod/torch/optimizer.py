"""DistributedOptimizer: any PyTorch optimizer, made to train one model on all ranks."""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Iterable, Optional

import torch

from horovod.common import _arguments
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._collectives._common import check_reduce_op
from horovod.torch._copies import combines_deltas, new
from horovod.torch._hooked_optimizer import HookedOptimizer
from horovod.torch._sharded_optimizer import ShardedOptimizer, check_sharded
from horovod.torch._submission import process_set_id
from horovod.torch.compression import Compression, Compressor
from horovod.torch.mpi_ops import Adasum, Average, rocm_built, size  # noqa: F401  (programs import them from here)


def _check_groups(groups: Any, parameters: Iterable[torch.Tensor]) -> None:
    """Raise ValueError unless ``groups`` is a number above 0, or disjoint lists of parameters."""
    if not (isinstance(groups, list) or (isinstance(groups, int) and groups > 0)):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    if isinstance(groups, int):
        return
    known, seen = set(parameters), set()
    for group in groups:
        if not isinstance(group, (list, tuple)) or not all(isinstance(p, torch.Tensor) for p in group):
            raise ValueError("groups must consist of lists of torch.Tensor.")
        for p in group:
            if p not in known:
                raise ValueError("groups has a tensor that is not a parameter of the optimizer.")
            if p in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(p)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Optional[Any] = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    sharded: bool = False,
    elementwise: bool = False,
) -> torch.optim.Optimizer:
    """Give ``optimizer`` a form whose ``step`` works on gradients reduced over the ranks of ``process_set``.

    Each gradient is reduced during backward, as soon as it is complete. Construct it after ``hvd.init()``, and start
    from equal parameters: see ``broadcast_parameters``.

    A parameter that is unfrozen later, or put into a group, is reduced from the next step on, if all ranks do so.

    Several optimizers may have parameters of one name, if all ranks construct them in the same order: timelines and
    errors then call those of the second one ``<name>.optimizer2``, and so on.

    Args:
        optimizer: the optimizer that makes the steps. The result takes over its parameter groups and state, and
            replaces it.
        named_parameters: ``model.named_parameters()``. Ranks match gradients by these names; without names, by the
            positions in the parameter groups.
        compression: ``Compression.fp16`` halves the traffic.
        backward_passes_per_step: how many backward passes to add up before a reduction.
        op: Average, Sum, Min, Max, Product or, on all ranks, Adasum. With Adasum and more than one rank, the optimizer
            works on this rank's own gradients, one parameter at a time, and the changes that it makes to the parameters
            are reduced; ``synchronize`` does nothing, ``skip_synchronize`` raises AssertionError, and ``groups``,
            ``sparse_as_dense`` and ``process_set`` have no meaning.
        gradient_predivide_factor: for Average, divide by this before the sum, and by the rest of size() after.
        num_groups: deprecated form of a number of ``groups``.
        groups: how many groups to cut the parameters into, or lists of parameters; a group is reduced in one call, when
            all its gradients are complete.
        sparse_as_dense: reduce sparse gradients in dense form. Without it their indices and values are gathered.
        process_set: the ranks whose gradients are reduced. On other ranks the result does what ``optimizer`` does.
        sharded: divide the optimizer's state among the ranks: each keeps and updates its share of every parameter, and
            ``step`` gathers the shares. For element-wise optimizers, with Average or Sum, without compression. All
            ranks pass the same.
        elementwise: with ``sharded``, the promise that an optimizer from elsewhere than ``torch.optim`` updates each
            element by its own gradient and state alone. A small made-up parameter is stepped to check it.

    Returns:
        An instance of a class derived from that of ``optimizer``. In addition to the methods of ``optimizer`` it has
        ``synchronize``, ``skip_synchronize`` (to clip gradients, call the first and put ``step`` into the second) and
        ``set_backward_passes_per_step``.

    Raises:
        ValueError, TypeError: arguments are bad.
        NotImplementedError: Adasum on a part of the ranks.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        >>> model(torch.ones(4, 2)).sum().backward()
        >>> optimizer.step()
    """
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, HookedOptimizer):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    check_reduce_op(op, process_set)
    process_set_id(process_set)  # raises the right error
    _arguments.compressor(compression)
    _arguments.predivide_factor(gradient_predivide_factor)
    if gradient_predivide_factor != 1.0:
        if rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=2,
        )
        if groups is None:
            groups = num_groups
    _arguments.passes(backward_passes_per_step)
    if groups is not None:
        _check_groups(groups, (p for group in optimizer.param_groups for p in group["params"]))

    if combines_deltas(op) and isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("Adasum needs an optimizer that can make a step for one parameter, which LBFGS cannot.")

    if sharded:
        check_sharded(optimizer, compression, op, elementwise)
    elif elementwise:
        raise ValueError("elementwise=True has a meaning only with sharded=True")

    distributed = new(optimizer.__class__, op, ShardedOptimizer if sharded else None)
    # Without "step", which exists if a learning rate scheduler has wrapped the optimizer's own.
    distributed.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key != "step")
    distributed._given = weakref.ref(optimizer)
    if combines_deltas(op) and not sharded:
        distributed._distribute(named_parameters, compression, backward_passes_per_step)
        return distributed
    distributed._distribute(
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
    return distributed
