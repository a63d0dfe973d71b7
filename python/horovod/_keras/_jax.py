"""Keras 3 on JAX."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import jax

import horovod.jax as hvd
from horovod._keras._options import Options
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._errors import internal_error
from horovod.jax.mpi_ops import check_compression

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
    """Reduces the gradients of one optimizer, all of them as one group."""

    def __init__(self, name: str, options: Options) -> None:
        if options.backward_passes_per_step > 1:
            raise ValueError(
                "backward_passes_per_step > 1 is not supported on JAX; use the optimizer's gradient_accumulation_steps."
            )
        self._name = name
        self._options = options
        self._local: dict[int, Any] = {}  # variables by their ids
        self._local_layers: list[Any] = []

    def register_local_var(self, variable: Any) -> None:
        """Keep the gradient of ``variable`` from being reduced."""
        self._local[id(variable)] = variable

    def register_local_layers(self, layers: Sequence[Any]) -> None:
        """Keep the gradients of the weights of ``layers``, also those that they do not have yet, from being reduced."""
        self._local_layers.extend(layers)

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients."""
        for layer in self._local_layers:
            for variable in layer.trainable_weights:
                self.register_local_var(variable)
        options = self._options
        n = options.process_set.size()
        results = list(gradients)
        shared = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if id(variable) not in self._local:
                shared.append(i)
            elif options.scale_local_gradients:
                results[i] = gradient / n
        if n != 1 and options.process_set.included() is not False:  # allreduce raises the error if the set has no size
            factor = options.gradient_predivide_factor
            reduced = hvd.allreduce(
                [gradients[i] for i in shared],
                name=self._name,
                compression=options.compression,
                op=options.op,
                prescale_factor=1.0 / factor,
                postscale_factor=factor,
                process_set=options.process_set,
            )
            for i, gradient in zip(shared, reduced):
                results[i] = gradient
        return apply(results)


def prepare(optimizer: Any, is_distributed: Callable[[Any], bool]) -> None:
    """Nothing needs to be done for an optimizer."""


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrite variables of Keras with those of ``root_rank``, on all ranks of ``process_set``."""
    values = hvd.broadcast([v.value for v in variables], root_rank, process_set=process_set)
    for variable, value in zip(variables, values):
        variable.assign(value)


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


def _array(value: Any) -> jax.Array:
    return jax.numpy.asarray(value)  # a list of lists means an array here; JAX takes it for a tree


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
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
        An array.

    Example:
        >>> np.asarray(hvd.allreduce([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    scales = (prescale_factor, postscale_factor)
    return hvd.allreduce(_array(value), average, name, compression, op, *scales, process_set)


def allgather(value: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> jax.Array:
    """Concatenate the values of all ranks along their first dimension, which may differ. Blocks.

    Args:
        value: an array, or what can be made one.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        An array.

    Example:
        >>> np.asarray(hvd.allgather([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return hvd.allgather(_array(value), name, process_set)


def broadcast(
    value: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Copy the value of one rank to all ranks of ``process_set``. Blocks.

    Args:
        value: an array, or what can be made one.
        root_rank: the rank whose value it is, a rank of the world.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        An array.

    Example:
        >>> np.asarray(hvd.broadcast([1.0, 2.0], root_rank=0)).tolist()
        [1.0, 2.0]
    """
    return hvd.broadcast(_array(value), root_rank, name, process_set)


def reducescatter(
    value: Any, name: Optional[str] = None, op: int = hvd.Average, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Reduce ``value`` over the ranks of ``process_set``, and give each rank its rows. Blocks.

    Args:
        value: an array, or what can be made one.
        name: by which ranks match their calls.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        An array.

    Example:
        >>> np.asarray(hvd.reducescatter([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return hvd.reducescatter(_array(value), op, name, process_set)
