"""Adding gradients up over several passes before they are reduced, eagerly and in ``tf.function``."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduction import LocalGradients, to_dense


class LocalGradientAggregationHelperEager:
    """Sums gradients locally, and reduces the sums at every n-th pass. For eager mode and ``tf.function``.

    Args:
        backward_passes_per_step: n.
        allreduce_func: a function of gradients and variables, which reduces the gradients.
        sparse_as_dense: make sparse gradients dense first.
        average_aggregated_gradients: divide the sums by n.
        process_set: the ranks that reduce.
        scale_local_gradients: divide the gradients of local variables by the size of the set.

    Raises:
        ValueError: ``backward_passes_per_step`` is below 1.

    Example:
        >>> from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager
        >>> helper = LocalGradientAggregationHelperEager(2, lambda gradients, _: gradients, False, True)
        >>> v = tf.Variable(1.0)
        >>> [float(helper.compute_gradients([tf.constant(4.0)], [v])[0]) for _ in range(2)]
        [4.0, 4.0]
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.counter: Any = None
        self._sums: Optional[list[Any]] = None  # by variable; None where there was no gradient
        self._local = LocalGradients(process_set, scale_local_gradients)

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable from being reduced.

        Args:
            var: the variable.
        """
        self._local.register(var)

    def _make_sums(self, gradients: Sequence[Any]) -> list[Any]:
        if self._sums is None:
            with tf.init_scope():  # outside of the function that is being traced
                self.counter = tf.Variable(0, trainable=False, dtype=tf.int32)
                self._sums = [
                    None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False) for g in gradients
                ]
        if len(gradients) != len(self._sums) or any((g is None) != (s is None) for g, s in zip(gradients, self._sums)):
            raise ValueError("with backward_passes_per_step > 1 the same variables must have gradients at each pass")
        return self._sums

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
        sums = self._make_sums(grads)
        present = [i for i, g in enumerate(grads) if g is not None]
        for i in present:
            sums[i].assign_add(grads[i])
        self.counter.assign_add(1)

        def reduce() -> list[Any]:
            shared = [i for i in present if not self._local.contains(vars[i])]
            values = {i: sums[i].read_value() for i in present}
            reduced = dict(zip(shared, self.allreduce_func([values[i] for i in shared], [vars[i] for i in shared])))
            n = self.backward_passes_per_step if self.average_aggregated_gradients else 1
            results = []
            for i in present:
                value = reduced[i] if i in reduced else self._local.scaled(values[i])
                results.append(value / n if n > 1 else tf.identity(value))
                sums[i].assign(tf.zeros_like(sums[i]))
            return results

        outputs = tf.cond(self._over(), reduce, lambda: [sums[i].read_value() for i in present])
        results: list[Any] = [None] * len(grads)
        for i, g in zip(present, outputs if isinstance(outputs, (list, tuple)) else [outputs]):
            results[i] = g
        return results

    def _over(self) -> Any:
        return tf.equal(self.counter, self.backward_passes_per_step)

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Change the variables at every n-th pass; at the others only count the step.

        Args:
            apply_grads_closure: a function without arguments that changes the variables.
            optimizer: the optimizer, whose steps are counted.
            args, kwargs: no effect.

        Returns:
            The optimizer's count of steps.
        """

        def apply() -> Any:
            apply_grads_closure()
            self.counter.assign(0)
            return tf.constant(True)

        def count() -> Any:
            optimizer.iterations.assign(optimizer.iterations + 1)
            return tf.constant(False)

        tf.cond(self._over(), apply, count)
        return optimizer.iterations
