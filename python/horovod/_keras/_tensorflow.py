"""Keras on TensorFlow: Keras 2, and Keras 3 with its TensorFlow backend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod._keras import _framework
from horovod._keras._framework import Framework
from horovod.common import _job, _patches
from horovod.common._options import Options
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _collectives, _errors, functions, mpi_ops
from horovod.tensorflow._reduction import LocalGradients, Reducer
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager


def tf_variable(variable: Any) -> Any:
    """TensorFlow's variable of a variable of Keras 3; other variables as they are."""
    return variable if isinstance(variable, tf.Variable) else getattr(variable, "_value", variable)


class Gradients(_framework.Gradients):
    """Reduces the gradients of one optimizer."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__(name, options)
        if isinstance(options.groups, list):
            options = options._replace(groups=[[tf_variable(v) for v in group] for group in options.groups])
        self._reducer = Reducer(name, options)
        # Adds gradients up over several passes; None if each pass is reduced at once.
        self.helper: Any = self._new_helper() if options.backward_passes_per_step > 1 else None
        self._kept = LocalGradients(options.process_set, options.scale_local_gradients)

    def _new_helper(self) -> Any:
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
            name=self._name,
        )

    def register_local_var(self, variable: Any) -> None:
        """Keep the gradient of ``variable`` from being reduced."""
        super().register_local_var(tf_variable(variable))

    def _register_weights(self) -> None:
        super()._register_weights()
        register = self._kept.register if self.helper is None else self.helper.register_local_var
        for variable in self._local.values():
            register(variable)

    def _reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        # By number, because names of layers may differ between ranks.
        return self._reducer(gradients, variables, use_generic_names=True)

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients. While gradients are being added up, only count the step of ``optimizer``."""
        return self.apply_reduced(optimizer, self.reduce(gradients, variables), variables, apply)

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Reduced gradients for :meth:`apply_reduced`. While gradients are being added up, the sums."""
        self._register_weights()
        native = [tf_variable(v) for v in variables]
        if self.helper is not None:
            return self.helper.compute_gradients(gradients, native)
        return self._reduced(gradients, native)

    def apply_reduced(
        self, optimizer: Any, reduced: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` the result of :meth:`reduce`, or gradients that were computed from it."""
        if self.helper is None:
            return apply(reduced)
        pairs = list(zip(reduced, map(tf_variable, variables)))
        return self.helper.apply_gradients(lambda: apply(reduced), optimizer, pairs)

    def reduced(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Reduced gradients, to apply elsewhere. ValueError if gradients are to be added up first."""
        if self.helper is not None:
            raise ValueError(
                "backward_passes_per_step > 1 does not work inside of a LossScaleOptimizer; put it inside: "
                "hvd.DistributedOptimizer(LossScaleOptimizer(optimizer), backward_passes_per_step=...)"
            )
        self._register_weights()
        return self._reduced(gradients, [tf_variable(v) for v in variables])

    @staticmethod
    def of_loss(loss: Any, variables: Sequence[Any], grad_loss: Any, tape: Any) -> list[Any]:
        """The unreduced gradients of ``loss``, a tensor of ``tape`` or a function."""
        if callable(loss):
            with tape or tf.GradientTape() as tape:
                tape.watch(variables)
                loss = loss()
        elif tape is None:
            raise ValueError("`tape` is required when a `Tensor` loss is passed.")
        return tape.gradient(loss, variables, grad_loss)

    @staticmethod
    def in_graph(loss: Any, variables: Sequence[Any]) -> list[Any]:
        """The unreduced gradients of ``loss``, a tensor of the graph that is being built."""
        return tf.gradients(loss, list(variables))

    def _reduced(self, gradients: Sequence[Any], native: Sequence[Any]) -> list[Any]:
        return self._kept.reduced_or_scaled(gradients, native, self._reduce)


class TensorFlow(Framework):
    """Keras 2, or Keras 3 on TensorFlow."""

    Compression = Compression
    Gradients = Gradients
    front_end = SimpleNamespace(
        allreduce=_collectives.allreduce,
        allgather=mpi_ops.allgather,
        allgather_object=functions.allgather_object,
        broadcast=mpi_ops.broadcast,
        reducescatter=_collectives.reducescatter,
        broadcast_object=functions.broadcast_object,
    )

    def tensor(self, value: Any) -> Any:
        """A tensor, eager or in a graph."""
        return tf.convert_to_tensor(value)

    def evaluated(self, tensor: Any) -> Any:
        """``tensor`` in eager mode; otherwise its value as an array."""
        if tf.executing_eagerly():
            return tensor
        of_keras_2 = getattr(tf.compat.v1.keras.backend, "get_session", functions.default_session)
        return of_keras_2().run(tensor)

    def internal_error(self, error: BaseException) -> Optional[HorovodInternalError]:
        """The HorovodInternalError for TensorFlow's ``error``; None if it is not the error of a collective."""
        return _errors.internal_error(error)

    def prepare(self, is_distributed: Callable[[Any], bool]) -> None:
        """Keep Keras 3 from compiling a model with such an optimizer by XLA, which cannot run its collectives."""
        from keras.src.trainers import trainer

        supports = trainer.model_supports_jit
        if getattr(supports, "knows_horovod", False):
            return

        def model_supports_jit(model: Any) -> bool:
            return not is_distributed(getattr(model, "optimizer", None)) and supports(model)

        model_supports_jit.knows_horovod = True  # type: ignore[attr-defined]
        _patches.replace("keras-no-xla", trainer, "model_supports_jit", model_supports_jit)

    def is_share(self, variable: Any) -> bool:
        """Whether each rank has its own part of ``variable``, which belongs to a sharded optimizer."""
        return mpi_ops.is_share(variable)

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Overwrite variables of Keras with those of ``root_rank``, all at once."""
        operation = functions.broadcast_variables([tf_variable(v) for v in variables], root_rank, process_set)
        if operation is not None:
            self.evaluated(operation)

    def broadcast_global_variables(self, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
        self.evaluated(functions.broadcast_global_variables(root_rank, process_set))

    broadcast_global_variables.__doc__ = Framework.broadcast_global_variables.__doc__

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
