"""Keras 3 on PyTorch."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np
import torch

import horovod.torch as hvd
from horovod._keras import _framework
from horovod._keras._framework import Framework
from horovod.common._options import Options
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.torch._grouped import submit_grouped_allreduce
from horovod.torch.compression import prepare as prepare_to_send

Compression = hvd.Compression


class Gradients(_framework.Gradients):
    """Reduces the gradients of one optimizer."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        self._sums: dict[int, torch.Tensor] = {}  # by variables' ids
        self._passes = 0
        factor = options.gradient_predivide_factor
        self._scales = (1.0 / factor, factor)  # before and after the sum

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients. While gradients are being added up, only count the step of ``optimizer``."""
        passes = self._options.backward_passes_per_step
        if passes > 1:
            for gradient, variable in zip(gradients, variables):
                if gradient is not None:
                    known = self._sums.get(id(variable))
                    self._sums[id(variable)] = gradient.clone() if known is None else known + gradient
            self._passes += 1
            if self._passes < passes:
                optimizer._iterations.assign_add(1)
                return None
            gradients = [self._sums.get(id(v)) for v in variables]
            self._sums, self._passes = {}, 0
        gradients = self._reduced(gradients, variables)
        if passes > 1 and self._options.average_aggregated_gradients:
            gradients = [None if g is None else g / passes for g in gradients]
        return apply(gradients)

    def _reduced(self, gradients: list[Any], variables: Sequence[Any]) -> list[Any]:
        self._register_weights()
        options = self._options
        results = list(gradients)
        shared = [i for i, v in enumerate(variables) if gradients[i] is not None and id(v) not in self._local]
        if options.scale_local_gradients:
            n = options.process_set.size()
            for i, variable in enumerate(variables):
                if id(variable) in self._local and results[i] is not None:
                    results[i] = results[i] / n
        if not options.process_set.included() or options.process_set.size() == 1:
            return results
        under_way = []
        for group in self._groups(shared, variables):
            tensors, contexts, wires = zip(*(self._prepared(gradients[i]) for i in group))
            name = f"{self._name}.{group[0]}"
            how = (options.op, *self._scales, options.process_set)
            handle = submit_grouped_allreduce(tensors, False, name, *how, wait=False, wires=wires)
            under_way.append((group, contexts, handle))
        for group, contexts, handle in under_way:
            for i, context, reduced in zip(group, contexts, hvd.synchronize(handle)):
                results[i] = options.compression.decompress(reduced, context)
        return results

    def _prepared(self, gradient: torch.Tensor) -> tuple[torch.Tensor, Any, int]:
        return prepare_to_send(self._options.compression, gradient.contiguous(), self._options.op)

    def _groups(self, shared: list[int], variables: Sequence[Any]) -> list[list[int]]:
        """The gradients that travel as groups: lists of indices."""
        groups = self._options.groups
        if not shared:
            return []
        if groups is None:
            return [[i] for i in shared]
        if isinstance(groups, int):
            return [list(part) for part in split_list(shared, min(groups, len(shared)))]
        index = {id(variables[i]): i for i in shared}
        found = [[index[id(v)] for v in group if id(v) in index] for group in groups]
        grouped = {i for group in found for i in group}
        return [group for group in found if group] + [[i] for i in shared if i not in grouped]


class Torch(Framework):
    """Keras 3 on PyTorch."""

    Compression = Compression
    Gradients = Gradients
    front_end = hvd

    def tensor(self, value: Any) -> torch.Tensor:
        """A tensor without gradients."""
        return value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Overwrite variables of Keras with those of ``root_rank``, each by its number."""
        named = [(f"{i}", variable.value.detach()) for i, variable in enumerate(variables)]
        hvd.broadcast_parameters(named, root_rank, process_set)

    def allreduce(
        self,
        value: Any,
        name: Optional[str] = None,
        average: Optional[bool] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: Optional[int] = None,
        compression: Any = Compression.none,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        scales = (prescale_factor, postscale_factor)
        return super().allreduce(value, name, average, *scales, op, compression, process_set)

    allreduce.__doc__ = Framework.allreduce.__doc__
