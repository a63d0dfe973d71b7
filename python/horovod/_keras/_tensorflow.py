"""Keras on TensorFlow: Keras 2, and Keras 3 with its TensorFlow backend."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod._keras._options import Options
from horovod.common import _job, _patches
from horovod.common._arguments import compressor as check_compression
from horovod.common._reduce_ops import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _collectives, functions, mpi_ops
from horovod.tensorflow._errors import internal_error
from horovod.tensorflow._reduction import LocalGradients, Reducer
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import broadcast_object, default_session
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

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


def _native(variable: Any) -> Any:
    """TensorFlow's variable of a variable of Keras 3; others as they are."""
    return variable if isinstance(variable, tf.Variable) else getattr(variable, "_value", variable)


class Gradients:
    """Reduces the gradients of one optimizer."""

    def __init__(self, name: str, options: Options) -> None:
        groups = options.groups
        if isinstance(groups, list):
            groups = [[_native(v) for v in group] for group in groups]
        self._reducer = Reducer(
            name,
            options.device_dense,
            options.device_sparse,
            options.compression,
            options.sparse_as_dense,
            options.op,
            options.gradient_predivide_factor,
            groups,
            options.process_set,
        )
        self._options = options
        # Adds gradients up over several passes; None if each pass is reduced at once.
        self.helper: Any = self._new_helper(name) if options.backward_passes_per_step > 1 else None
        self._local = LocalGradients(options.process_set, options.scale_local_gradients)
        self._local_layers: list[Any] = []

    def _new_helper(self, name: str) -> Any:
        options = self._options
        if tf.compat.v1.executing_eagerly_outside_functions():
            return LocalGradientAggregationHelperEager(
                options.backward_passes_per_step,
                self._reduce,
                options.sparse_as_dense,
                options.average_aggregated_gradients,
                options.process_set,
                options.scale_local_gradients,
            )
        return LocalGradientAggregationHelper(
            options.backward_passes_per_step,
            self._reduce,
            options.sparse_as_dense,
            options.average_aggregated_gradients,
            _job.rank(),
            LocalGradientAggregationHelper._OPTIMIZER_TYPE_KERAS,
            options.process_set,
            options.scale_local_gradients,
            name=name,
        )

    def register_local_var(self, variable: Any) -> None:
        """Keep the gradient of ``variable`` from being reduced."""
        register = self._local.register if self.helper is None else self.helper.register_local_var
        register(_native(variable))

    def register_local_layers(self, layers: Sequence[Any]) -> None:
        """Keep the gradients of the weights of ``layers``, also those that they do not have yet, from being reduced."""
        self._local_layers.extend(layers)

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        # By number, because names of layers may differ by rank.
        return self._reducer(gradients, variables, use_generic_names=True)

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients; while they are being added up only count the step of ``optimizer``."""
        return self.apply_reduced(optimizer, self.reduce(gradients, variables), variables, apply)

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Reduced gradients for :meth:`apply_reduced`; while they are being added up, the sums."""
        self._register_layers()
        native = [_native(v) for v in variables]
        if self.helper is not None:
            return self.helper.compute_gradients(gradients, native)
        return self._reduced(gradients, native)

    def apply_reduced(
        self, optimizer: Any, reduced: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` what :meth:`reduce` has returned, or what was made of it."""
        if self.helper is None:
            return apply(reduced)
        pairs = list(zip(reduced, map(_native, variables)))
        return self.helper.apply_gradients(lambda: apply(reduced), optimizer, pairs)

    def reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Reduced gradients, for who applies them elsewhere. ValueError where they are to be added up first."""
        if self.helper is not None:
            raise ValueError(
                "backward_passes_per_step > 1 does not work inside of a LossScaleOptimizer; put it inside: "
                "hvd.DistributedOptimizer(LossScaleOptimizer(optimizer), backward_passes_per_step=...)"
            )
        self._register_layers()
        return self._reduced(gradients, [_native(v) for v in variables])

    @staticmethod
    def of_loss(loss: Any, variables: Sequence[Any], grad_loss: Any, tape: Any) -> list[Any]:
        """The gradients, not yet reduced, of ``loss``, a tensor of ``tape`` or a function."""
        if callable(loss):
            with tape or tf.GradientTape() as tape:
                tape.watch(variables)
                loss = loss()
        elif tape is None:
            raise ValueError("`tape` is required when a `Tensor` loss is passed.")
        return tape.gradient(loss, variables, grad_loss)

    @staticmethod
    def in_graph(loss: Any, variables: Sequence[Any]) -> list[Any]:
        """The gradients, not yet reduced, of ``loss``, a tensor of the graph that is being built."""
        return tf.gradients(loss, list(variables))

    def _reduced(self, gradients: Sequence[Any], native: Sequence[Any]) -> list[Any]:
        shared = [i for i, v in enumerate(native) if not self._local.contains(v)]
        reduced = [self._local.scaled(g) if self._local.contains(v) else g for g, v in zip(gradients, native)]
        for i, gradient in zip(shared, self._reduce([gradients[i] for i in shared], [native[i] for i in shared])):
            reduced[i] = gradient
        return reduced

    def _register_layers(self) -> None:
        for layer in self._local_layers:
            for variable in layer.trainable_weights:
                self.register_local_var(variable)


def prepare(optimizer: Any, is_distributed: Callable[[Any], bool]) -> None:
    """Keep Keras 3 from compiling a model with this optimizer by XLA, which has no collectives of other libraries."""
    if not hasattr(type(optimizer), "stateless_apply"):
        return
    from keras.src.trainers import trainer

    supports = trainer.model_supports_jit
    if getattr(supports, "knows_horovod", False):
        return

    def model_supports_jit(model: Any) -> bool:
        return not is_distributed(getattr(model, "optimizer", None)) and supports(model)

    model_supports_jit.knows_horovod = True  # type: ignore[attr-defined]
    _patches.replace("keras-no-xla", trainer, "model_supports_jit", model_supports_jit)


def broadcast_variables(variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrite variables of Keras with those of ``root_rank``, on all ranks of ``process_set``."""
    operation = functions.broadcast_variables([_native(v) for v in variables], root_rank, process_set)
    if operation is not None:
        _evaluated(operation)


def broadcast_global_variables(root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrite all global variables of a graph of TensorFlow 1 with those of one rank.

    Args:
        root_rank: the rank whose variables all get.
        process_set: the ranks that take part.

    Raises:
        RuntimeError: in eager mode, which has no global variables.

    Example:
        >>> hvd.broadcast_global_variables(0)
        Traceback (most recent call last):
        RuntimeError: hvd.broadcast_global_variables() ...
    """
    _evaluated(functions.broadcast_global_variables(root_rank, process_set))


def _evaluated(tensor: Any) -> Any:
    """``tensor`` in eager mode, else its value as an array."""
    if tf.executing_eagerly():
        return tensor
    of_keras_2 = getattr(tf.compat.v1.keras.backend, "get_session", default_session)
    return of_keras_2().run(tensor)


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
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
        A tensor; in a graph of TensorFlow 1 its value, which the session computes.

    Example:
        >>> np.asarray(hvd.allreduce([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    tensor = _collectives.allreduce(
        tf.convert_to_tensor(value),
        name=name,
        average=average,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        process_set=process_set,
    )
    return _evaluated(tensor)


def allgather(value: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenate the values of all ranks along their first dimension, which may differ. Blocks.

    Args:
        value: an array, or what can be made one.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        A tensor; in a graph of TensorFlow 1 its value, which the session computes.

    Example:
        >>> np.asarray(hvd.allgather([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    return _evaluated(mpi_ops.allgather(tf.convert_to_tensor(value), name=name, process_set=process_set))


def broadcast(
    value: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Copy the value of one rank to all ranks of ``process_set``. Blocks.

    Args:
        value: an array, or what can be made one.
        root_rank: the rank whose value it is, a rank of the world.
        name: by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        A tensor; in a graph of TensorFlow 1 its value, which the session computes.

    Example:
        >>> np.asarray(hvd.broadcast([1.0, 2.0], root_rank=0)).tolist()
        [1.0, 2.0]
    """
    return _evaluated(mpi_ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name, process_set=process_set))


def reducescatter(
    value: Any, name: Optional[str] = None, op: int = Average, process_set: ProcessSet = global_process_set
) -> Any:
    """Reduce ``value`` over the ranks of ``process_set``, and give each rank its rows. Blocks.

    Args:
        value: an array, or what can be made one.
        name: by which ranks match their calls.
        op: Average or Sum.
        process_set: the ranks that take part.

    Returns:
        A tensor; in a graph of TensorFlow 1 its value, which the session computes.

    Example:
        >>> np.asarray(hvd.reducescatter([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """
    tensor = _collectives.reducescatter(tf.convert_to_tensor(value), name=name, op=op, process_set=process_set)
    return _evaluated(tensor)
