"""How the optimizers and tapes of TensorFlow and Keras reduce gradients: their arguments, checked, in one value."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from horovod.common import _arguments, _job
from horovod.common._groups import Groups
from horovod.common._reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set


class Options(NamedTuple):
    """The arguments of ``DistributedOptimizer`` and ``DistributedGradientTape`` that say how gradients are reduced.

    ``groups`` are as returned by :func:`._groups.resolve_groups`. A tape in eager mode makes Options at each step.
    """

    compression: Any
    device_dense: str = ""
    device_sparse: str = ""
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = Average
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    groups: Groups = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def check(self, check_compression: Callable[[Any], Any] = _arguments.compressor) -> None:
        """Raise TypeError or ValueError for wrong options, and for options that exclude each other."""
        check_compression(self.compression)
        _arguments.process_set(self.process_set)
        _arguments.predivide_factor(self.gradient_predivide_factor)
        if self.gradient_predivide_factor != 1.0:
            if _job.rocm_built():
                raise ValueError("gradient_predivide_factor not supported yet with ROCm")
            if self.op != Average:
                raise ValueError("gradient_predivide_factor not supported with op != Average")
        _arguments.passes(self.backward_passes_per_step)

    def check_for_keras(self, check_compression: Callable[[Any], Any]) -> None:
        """As :meth:`check`, for an optimizer of Keras."""
        if self.op not in (Average, Sum):
            raise ValueError("op currently only supports Average and Sum")
        self.check(check_compression)
