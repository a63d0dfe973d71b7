"""Adds gradients up over several passes before they are reduced, eagerly and in ``tf.function``."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalGradientAggregation


class LocalGradientAggregationHelperEager(LocalGradientAggregation):
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
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set,
            scale_local_gradients,
        )
        self._sums: Optional[list[Any]] = None  # by variable; None where there was no gradient

    def _make_sums(self, gradients: Sequence[Any]) -> list[Any]:
        if self._sums is None:
            with tf.init_scope():  # outside the function that is being traced
                self.counter = tf.Variable(0, trainable=False, dtype=tf.int32)
                self._sums = [
                    None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False) for g in gradients
                ]
        if len(gradients) != len(self._sums) or any((g is None) != (s is None) for g, s in zip(gradients, self._sums)):
            raise ValueError("with backward_passes_per_step > 1 the same variables must have gradients at each pass")
        return self._sums

    def _sums_of(self, grads: Sequence[Any], present: list[int], vars: list[Any]) -> Any:
        all_sums = self._make_sums(grads)
        sums = [all_sums[i] for i in present]
        for total, i in zip(sums, present):
            total.assign_add(grads[i])
        self.counter.assign_add(1)

        def values() -> list[Any]:
            return [total.read_value() for total in sums]

        def reduce() -> list[Any]:
            reduced = self._reduced(values(), vars)
            for total in sums:
                total.assign(tf.zeros_like(total))
            return reduced

        return tf.cond(self._over(), reduce, values)

    def _over(self) -> Any:
        return tf.equal(self.counter, self.backward_passes_per_step)

    def apply_gradients(self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Change the variables at every n-th pass; otherwise only count the step.

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
