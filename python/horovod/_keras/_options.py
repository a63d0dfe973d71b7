"""The options of a distributed optimizer, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horovod.common import _arguments, _job
from horovod.common._groups import Groups, resolve_groups
from horovod.common._reduce_ops import Average, Sum
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

    def check(self, framework: Any) -> None:
        """Raise TypeError or ValueError for what cannot be on ``framework``, a module of :mod:`horovod._keras`."""
        framework.check_compression(self.compression)
        _arguments.process_set(self.process_set)
        _arguments.predivide_factor(self.gradient_predivide_factor)
        if self.gradient_predivide_factor != 1.0 and _job.rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if self.op not in (Average, Sum):
            raise ValueError("op currently only supports Average and Sum")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        _arguments.passes(self.backward_passes_per_step)
        resolve_groups(0, self.groups)
