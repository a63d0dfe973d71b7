"""Copies of a DistributedOptimizer, also pickled ones: they are distributed as the original is."""

from __future__ import annotations

import warnings
from typing import Any, Optional

from horovod.common._job import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import never_trace
from horovod.torch._delta_optimizer import DeltaOptimizer
from horovod.torch._gradient_optimizer import GradientOptimizer
from horovod.torch._hooked_optimizer import HookedOptimizer
from horovod.torch.mpi_ops import Adasum, is_initialized, size


def combines_deltas(op: int) -> bool:
    """Whether the optimizers' steps are reduced, not the gradients."""
    return op == Adasum and size() > 1


def new(base: Any, op: int, variant: Optional[type[HookedOptimizer]] = None) -> Any:
    """A DistributedOptimizer without any attribute, of a class that looks like ``base``.

    ``variant`` is the class of its own part; without it, ``op`` decides.

    No constructor: that of an arbitrary class may need arguments that only its caller knows.
    """
    if variant is None:
        variant = DeltaOptimizer if combines_deltas(op) else GradientOptimizer
    members = {"__module__": base.__module__, "__doc__": base.__doc__, "__reduce_ex__": _reduce}
    cls: Any = type(base.__name__, (variant, base), members)
    return cls.__new__(cls)


def _reduce(self: HookedOptimizer, protocol: Any) -> Any:
    """Copy and pickle what the optimizer's own class does, and how the optimizer is distributed.

    Pickle cannot find the class by its name, which is that of the optimizer's own class.
    """
    mro = type(self).__mro__
    base: Any = mro[mro.index(HookedOptimizer) + 1]
    return restored, (base, self._settings()), base.__getstate__(self)


def restored(base: Any, settings: dict[str, Any]) -> Any:
    """Make the object for a copied or unpickled optimizer, which then gets the state of its own class.

    In a process outside a job, such as one that evaluates a checkpoint, it is an optimizer of its own class alone.
    """
    if not is_initialized():
        warnings.warn(
            f"Horovod is not initialised in this process, so this DistributedOptimizer is loaded as {base.__name__} "
            "alone. If it is to train with other ranks, call hvd.init() before you load it, or give it to "
            "hvd.DistributedOptimizer.",
            stacklevel=2,
        )
        return base.__new__(base)
    distributed = new(base, settings["op"])
    distributed._restore(settings, _process_set_of(settings["ranks"]))
    return distributed


def _process_set_of(ranks: Optional[list[int]]) -> ProcessSet:
    if ranks is None:
        return global_process_set
    for set_id, known in basics._get_process_set_ids_and_ranks().items():
        if list(known) == ranks:
            process_set = ProcessSet(ranks)
            process_set.process_set_id = set_id
            return process_set
    raise ValueError(
        f"this DistributedOptimizer reduces over the process set of ranks {ranks}, which this job does not have: call "
        "hvd.add_process_set before you copy or load it"
    )


never_trace(__name__)
