"""Distributed optimizers of ``tf.compat.v1.train``. Those of Keras are in :mod:`horovod.tensorflow.keras`."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from horovod._keras.optimizer import distribute
from horovod.common import _arguments
from horovod.common._groups import Groups, resolve_groups
from horovod.common._options import Options
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._collectives import allreduce
from horovod.tensorflow._reduction import LocalGradients, Reducer, check
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.mpi_ops import Adasum, Average

_LegacyOptimizer: Any = tf.compat.v1.train.Optimizer


class _Wrapping(_LegacyOptimizer):
    """Wraps ``optimizer``, which keeps the slots and the variables."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As in the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """As in the wrapped optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """As in the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapping):
    """Reduces gradients over the ranks before the wrapped optimizer applies them."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, options: Options) -> None:
        super().__init__(optimizer, name, use_locking)
        self._reducer = Reducer(name, options)
        self._local = LocalGradients(options.process_set, options.scale_local_gradients)
        self._agg_helper = None
        if options.backward_passes_per_step > 1:
            if tf.executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager execution."
                )
            self._agg_helper = LocalGradientAggregationHelper(
                options.backward_passes_per_step,
                self._reducer,
                options.sparse_as_dense,
                options.average_aggregated_gradients,
                mpi_ops.rank(),
                LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
                options.process_set,
                options.scale_local_gradients,
                name=self._name,
            )

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of ``var`` from being reduced."""
        if self._agg_helper is not None:
            self._agg_helper.register_local_var(var)
        else:
            self._local.register(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """The gradients and variables of the wrapped optimizer; the gradients are reduced over the ranks."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients = [g for g, _ in pairs]
        variables = [v for _, v in pairs]
        if self._agg_helper is not None:
            return list(zip(self._agg_helper.compute_gradients(gradients, variables), variables))
        return list(zip(self._local.reduced_or_scaled(gradients, variables, self._reducer), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """As in the wrapped optimizer; while gradients are being added up it only counts the step."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        if self._agg_helper is None:
            return apply()
        return self._agg_helper.apply_gradients(apply, self, pairs, global_step=global_step)


class _DistributedAdasumOptimizer(_Wrapping):
    """Each rank applies its own gradients; Adasum combines the resulting changes of the variables."""

    def __init__(self, optimizer: Any, name: str, use_locking: bool, options: Options) -> None:
        super().__init__(optimizer, name, use_locking)
        self._options = {
            "device_dense": options.device_dense,
            "device_sparse": options.device_sparse,
            "compression": options.compression,
        }
        self._passes = options.backward_passes_per_step

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """As in the wrapped optimizer."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """Apply the gradients; at every n-th pass, combine the changes since the last one with the other ranks'."""
        pairs = list(grads_and_vars)
        variables = [v for g, v in pairs if g is not None]
        starts = [self._start_of(v) for v in variables]
        with tf.compat.v1.variable_scope(self._name, reuse=tf.compat.v1.AUTO_REUSE):
            passes = tf.compat.v1.get_variable(
                "step_count", shape=(), dtype=tf.int32, trainable=False, initializer=tf.compat.v1.zeros_initializer()
            )
        # The start values are noted before the first pass.
        first = tf.equal(tf.identity(passes) % self._passes, 0)
        with tf.control_dependencies([first]):
            noted = [s.assign(tf.where(first, tf.identity(v), tf.identity(s))) for v, s in zip(variables, starts)]
        with tf.control_dependencies(noted):
            applied = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([applied]):
            counted = tf.identity(tf.compat.v1.assign_add(passes, 1))

        def combine() -> Any:
            changes = []
            for v, s in zip(variables, starts):
                start = tf.identity(s)
                change = allreduce(
                    tf.identity(v) - start,
                    op=Adasum,
                    name=f"{self._name}_{mpi_ops._normalize_name(v.name)}",
                    **self._options,
                )
                changes.append(v.assign(start + change))
            return tf.group(*changes)

        with tf.control_dependencies([counted]):
            return tf.cond(tf.equal(counted % self._passes, 0), combine, lambda: tf.group())

    def _start_of(self, variable: Any) -> Any:
        return self._zeros_slot(variable, "delta_start", self._name)


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Give ``optimizer`` a form that reduces gradients over the ranks before it applies them.

    Args:
        optimizer: one of ``tf.compat.v1.train`` or of Keras.
        name: the name of the operations; "Distributed" and the name of the optimizer's class by default.
        device_dense, device_sparse: the device for the arithmetic around the communication, in TensorFlow.
        compression: for the way between ranks, see :class:`Compression`.
        sparse_as_dense: turn sparse gradients into dense ones first.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        use_locking: as in the optimizers of ``tf.compat.v1.train``.
        op: Average, Sum or, for ``tf.compat.v1.train``, Adasum.
        backward_passes_per_step: how many gradients are added up before they are reduced and applied; until then steps
            are only counted.
        average_aggregated_gradients: whether these sums are divided by their number.
        num_groups: deprecated form of a number of ``groups``.
        groups: a number of groups, or lists of variables whose gradients are reduced together.
        process_set: the ranks that train together.
        scale_local_gradients: divide gradients that are not reduced by the number of ranks.

    Returns:
        The optimizer. Its ``register_local_var(variable)`` keeps the gradient of a variable from being reduced.

    Raises:
        TypeError, ValueError: an argument is wrong, or arguments exclude each other.
        NotImplementedError: Adasum on a part of the ranks.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
        >>> type(optimizer).__name__
        'SGD'
    """
    _arguments.name(name)
    options = Options(
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=resolve_groups(num_groups, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    check(options)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if not isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            raise ValueError("op == Adasum is not supported yet with Keras")
        return distribute(tf.keras, optimizer, name, options)
    kind = type(optimizer).__name__
    if op == Adasum:
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        return _DistributedAdasumOptimizer(optimizer, name or f"DistributedDelta{kind}", use_locking, options)
    return _DistributedOptimizer(optimizer, name or f"Distributed{kind}", use_locking, options)
