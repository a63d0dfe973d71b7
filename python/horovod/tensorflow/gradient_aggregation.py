"""Adding gradients up over several passes before they are reduced, in graphs (TensorFlow 1 style)."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduction import LocalGradients, to_dense


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
    """Leave out what is None.

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


class LocalGradientAggregationHelper:
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
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.process_set = process_set
        self.name = name
        self.counter: Any = None
        self._sums: list[Any] = []  # by variable; None where there was no gradient
        self._local = LocalGradients(process_set, scale_local_gradients)

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable from being reduced.

        Args:
            var: the variable.
        """
        self._local.register(var)

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

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Add gradients up.

        Args:
            grads: the gradients of one pass; None for a variable without one.
            vars: their variables.

        Returns:
            The reduced sums at every n-th pass, the local sums otherwise.

        Raises:
            ValueError: a gradient is sparse, and ``sparse_as_dense`` is False.
        """
        if self.sparse_as_dense:
            grads = [to_dense(g) for g in grads]
        if any(isinstance(g, tf.IndexedSlices) for g in grads):
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False."
            )
        self._make_sums(grads)
        first = tf.equal(self.counter, 0)
        added = [
            None
            if g is None
            else s.assign(tf.where(first, g, s.read_value() + g) if _resource(s) else tf.where(first, g, s + g))
            for s, g in zip(self._sums, grads)
        ]
        sums = [None if a is None else tf.identity(a) for a in added]
        with tf.control_dependencies(get_not_none_from_list(sums)):
            passed = self.counter.assign_add(1)
        present = [i for i, g in enumerate(sums) if g is not None]

        def reduce() -> list[Any]:
            shared = [i for i in present if not self._local.contains(vars[i])]
            reduced = dict(zip(shared, self.allreduce_func([sums[i] for i in shared], [vars[i] for i in shared])))
            for i in present:
                if i not in reduced:
                    reduced[i] = self._local.scaled(sums[i])
            n = self.backward_passes_per_step if self.average_aggregated_gradients else 1
            return [tf.identity(reduced[i] / n if n > 1 else reduced[i]) for i in present]

        outputs = tf.cond(
            tf.equal(passed, self.backward_passes_per_step), reduce, lambda: [tf.identity(sums[i]) for i in present]
        )
        results: list[Any] = [None] * len(grads)
        for i, g in zip(present, outputs if isinstance(outputs, (list, tuple)) else [outputs]):
            results[i] = g
        return results

    def apply_gradients(
        self,
        apply_grads_closure: Callable[[], Any],
        optimizer: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Change the variables at every n-th pass; at the others only count the step.

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


def _resource(variable: Any) -> bool:
    return hasattr(variable, "read_value")
