"""Adds gradients up over several passes before they are reduced, in graphs (TensorFlow 1 style)."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalGradientAggregation


def apply_op_to_not_none_tensors(tensor_op: Callable[..., Any], tensors: Sequence[Any], *args: Any) -> list[Any]:
    """Apply a function to each tensor of a list.

    Args:
        tensor_op: the function.
        tensors: the tensors. None stays None.
        args: further arguments of the function.

    Returns:
        The results.

    Example:
        >>> from horovod.tensorflow.gradient_aggregation import apply_op_to_not_none_tensors
        >>> apply_op_to_not_none_tensors(lambda x, y: x + y, [1, None], 2)
        [3, None]
    """
    return [tensor if tensor is None else tensor_op(tensor, *args) for tensor in tensors]


def get_not_none_from_list(tensors: Sequence[Any]) -> list[Any]:
    """Remove None from a list.

    Args:
        tensors: a list.

    Returns:
        The list without None.

    Example:
        >>> from horovod.tensorflow.gradient_aggregation import get_not_none_from_list
        >>> get_not_none_from_list([1, None, 2])
        [1, 2]
    """
    return [x for x in tensors if x is not None]


class LocalGradientAggregationHelper(LocalGradientAggregation):
    """Sums gradients locally, and reduces the sums at every n-th pass. For graphs;
    :class:`.gradient_aggregation_eager.LocalGradientAggregationHelperEager` is for eager mode.

    Args:
        backward_passes_per_step: n.
        allreduce_func: a function of gradients and variables, which reduces the gradients.
        sparse_as_dense: make sparse gradients dense first.
        average_aggregated_gradients: divide the sums by n.
        rank: this process's rank, for the names of the sums.
        optimizer_type: of Keras or of TensorFlow 1: one of the two constants of this class.
        process_set: the ranks that reduce.
        scale_local_gradients: divide the gradients of local variables by the size of the set.
        name: prefix of the names of the sums.

    Raises:
        ValueError: ``backward_passes_per_step`` is below 1.

    Example:
        >>> from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper as Helper
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     helper = Helper(2, lambda gradients, _: gradients, False, True, 0, Helper._OPTIMIZER_TYPE_LEGACY)
        ...     v = tf.compat.v1.get_variable("v", initializer=1.0)
        ...     reduced = helper.compute_gradients([tf.constant(4.0)], [v])
        ...     session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        ...     [[float(g) for g in session.run(reduced)] for _ in range(2)]
        [None, None]
        [[4.0], [4.0]]
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: str,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.name = name
        self._sums: list[Any] = []  # by variable; None where there was no gradient

    def _make_sums(self, gradients: Sequence[Any]) -> None:
        scope = "aggregation_variables_" + self.name + str(self.rank)
        with tf.compat.v1.variable_scope(scope, reuse=tf.compat.v1.AUTO_REUSE):
            self.counter = tf.compat.v1.get_variable(
                "aggregation_counter",
                shape=(),
                dtype=tf.int32,
                trainable=False,
                initializer=tf.compat.v1.zeros_initializer(),
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
            )
            self._sums = [
                None
                if g is None
                else tf.compat.v1.get_variable(
                    f"sum_{i}",
                    shape=g.shape,
                    dtype=g.dtype,
                    trainable=False,
                    initializer=tf.compat.v1.zeros_initializer(),
                    collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES, "aggregating_collection"],
                )
                for i, g in enumerate(gradients)
            ]

    def _sums_of(self, grads: Sequence[Any], present: list[int], vars: list[Any]) -> Any:
        self._make_sums(grads)
        first = tf.equal(self.counter, 0)
        sums = [tf.identity(_added(self._sums[i], grads[i], first)) for i in present]
        with tf.control_dependencies(sums):
            passed = self.counter.assign_add(1)
        over = tf.equal(passed, self.backward_passes_per_step)
        return tf.cond(over, lambda: self._reduced(sums, vars), lambda: [tf.identity(s) for s in sums])

    def apply_gradients(
        self,
        apply_grads_closure: Callable[[], Any],
        optimizer: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Change the variables at every n-th pass; otherwise only count the step.

        Args:
            apply_grads_closure: a function without arguments that changes the variables.
            optimizer: the optimizer, whose steps are counted.
            args, kwargs: those of the optimizer's ``apply_gradients``.

        Returns:
            An operation that does it.
        """
        pairs = args[0] if args else kwargs["grads_and_vars"]
        gradients = [g for g, _ in pairs]
        with tf.control_dependencies(get_not_none_from_list(gradients)):
            over = tf.equal(
                self.counter.read_value() if _resource(self.counter) else self.counter, self.backward_passes_per_step
            )

        def apply() -> Any:
            with tf.control_dependencies([apply_grads_closure()]):
                return tf.group(self.counter.assign(0))

        def count() -> Any:
            if self.optimizer_type == self._OPTIMIZER_TYPE_KERAS:
                return tf.group(optimizer.iterations.assign_add(1))
            step: Optional[Any] = args[1] if len(args) > 1 else kwargs.get("global_step")
            return tf.no_op() if step is None else tf.group(tf.compat.v1.assign_add(step, tf.ones_like(step)))

        return tf.cond(over, apply, count)


def _added(total: Any, gradient: Any, first: Any) -> Any:
    """Add ``gradient`` to ``total``, a variable; at the first pass, replace the total."""
    before = total.read_value() if _resource(total) else total
    return total.assign(tf.where(first, gradient, before + gradient))


def _resource(variable: Any) -> bool:
    return hasattr(variable, "read_value")
