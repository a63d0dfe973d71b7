"""The options of a distributed optimizer, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.common._groups import Groups, resolve_groups
from horovod.common.process_sets import ProcessSet


@dataclass(frozen=True)
class Options:
    """The arguments of ``DistributedOptimizer`` that say how gradients are reduced."""

    device_dense: str
    device_sparse: str
    compression: Any
    sparse_as_dense: bool
    gradient_predivide_factor: float
    op: int
    backward_passes_per_step: int
    average_aggregated_gradients: bool
    groups: Groups
    process_set: ProcessSet
    scale_local_gradients: bool

    def check(self, hvd: Any) -> None:
        """Raise ValueError for what cannot be. ``hvd`` is the framework's front end."""
        if self.gradient_predivide_factor != 1.0 and hvd.rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if self.op not in (hvd.Average, hvd.Sum):
            raise ValueError("op currently only supports Average and Sum")
        if self.gradient_predivide_factor != 1.0 and self.op != hvd.Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        if self.backward_passes_per_step < 1:
            raise ValueError("backward_passes_per_step must be > 0")
        resolve_groups(0, self.groups)
