"""Keras 3 on PyTorch."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np
import torch

import horovod.torch as hvd
from horovod._keras._options import Options
from horovod.common._arguments import compressor as check_compression
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.torch._grouped import submit_grouped_allreduce
from horovod.torch.compression import prepare as prepare_to_send

__all__ = [
    "Compression",
    "Gradients",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "check_compression",
    "internal_error",
    "prepare",
    "reducescatter",
]

Compression = hvd.Compression
broadcast_object = hvd.broadcast_object


class Gradients:
    """Reduces the gradients of one optimizer."""

    def __init__(self, name: str, options: Options) -> None:
        self._name = name
        self._options = options
        self._local: dict[int, Any] = {}  # variables by their ids
        self._local_layers: list[Any] = []
        self._sums: dict[int, torch.Tensor] = {}  # by the ids of variables
        self._passes = 0
        factor = options.gradient_predivide_factor
        self._scales = (1.0 / factor, factor)  # before the sum and after it

    def register_local_var(self, variable: Any) -> None:
        """Keep the gradient of ``variable`` from being reduced."""
        self._local[id(variable)] = variable

    def register_local_layers(self, layers: Sequence[Any]) -> None:
        """Keep the gradients of the weights of ``layers``, also those that they do not have yet, from being reduced."""
        self._local_layers.extend(layers)

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients; while they are being added up only count the step of ``optimizer``."""
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
        for layer in self._local_layers:
            for variable in layer.trainable_weights:
                self.register_local_var(variable)
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
        """Which gradients travel as a group: lists of indices."""
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


def prepare(optimizer: Any, is_distributed: Callable[[Any], bool]) -> None:
    """Nothing needs to be done for an optimizer."""


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrite variables of Keras with those of ``root_rank``, on all ranks of ``process_set``."""
    names = [f"{i}" for i, _ in enumerate(variables)]
    hvd.broadcast_parameters([(n, v.value.detach()) for n, v in zip(names, variables)], root_rank, process_set)


def broadcast_global_variables(root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrite all global variables of a graph of TensorFlow 1 with those of one rank.

    Args:
        root_rank: the rank whose variables all get.
        process_set: the ranks that take part.

    Raises:
        RuntimeError: always; there are no global variables without graphs.

    Example:
        >>> hvd.broadcast_global_variables(0)
        Traceback (most recent call last):
        RuntimeError: hvd.broadcast_global_variables() ...
    """
    raise RuntimeError(
        "hvd.broadcast_global_variables() is for graphs of TensorFlow. Use a BroadcastGlobalVariablesCallback instead."
    )


def _tensor(value: Any) -> torch.Tensor:
    return value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduce ``value`` over the ranks of ``process_set``: the average, unless ``op`` says otherwise. Blocks.

    Args:
        value: an array, or what can be made one; shape and dtype must be equal on all ranks.
        name: by which ranks match their calls.
        average: deprecated form of ``op``: True is Average, False is Sum.
        prescale_factor: each element is multiplied by it before.
        postscale_factor: the same, after.
        op: a reduce operation of the framework's front end.
        compression: how the value travels, see ``Compression``.
        process_set: the ranks that take part.

    Returns:
        A tensor.

    Example:
        >>> np.asarray(hvd.allreduce([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    check_compression(compression)
    return hvd.allreduce(
        _tensor(value),
        average=average,
        name=name,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )


def allgather(value: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Concatenate the values of all ranks along their first dimension, which may differ. Blocks.

    Args:
        value: an array, or what can be made one.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        A tensor.

    Example:
        >>> np.asarray(hvd.allgather([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return hvd.allgather(_tensor(value), name=name, process_set=process_set)


def broadcast(
    value: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Copy the value of one rank to all ranks of ``process_set``. Blocks.

    Args:
        value: an array, or what can be made one.
        root_rank: the rank whose value it is, a rank of the world.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        A tensor.

    Example:
        >>> np.asarray(hvd.broadcast([1.0, 2.0], root_rank=0)).tolist()
        [1.0, 2.0]
    """
    return hvd.broadcast(_tensor(value), root_rank, name=name, process_set=process_set)


def reducescatter(
    value: Any, name: Optional[str] = None, op: int = hvd.Average, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Reduce ``value`` over the ranks of ``process_set``, and give each rank its rows. Blocks.

    Args:
        value: an array, or what can be made one.
        name: by which ranks match their calls.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A tensor.

    Example:
        >>> np.asarray(hvd.reducescatter([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return hvd.reducescatter(_tensor(value), name=name, op=op, process_set=process_set)


def internal_error(error: BaseException) -> Optional[HorovodInternalError]:
    """None: the collectives raise HorovodInternalError themselves."""
    return None
