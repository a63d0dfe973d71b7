"""Adding gradients up over several passes before they are reduced, eagerly and in ``tf.function``."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduction import LocalGradients, to_dense


class LocalGradientAggregationHelperEager:
    """Sums gradients locally, and reduces the sums at every ``backward_passes_per_step``-th pass.

    ``allreduce_func(gradients, variables)`` reduces. Sums are divided by the number of passes if
    ``average_aggregated_gradients``. Sparse gradients need ``sparse_as_dense``, else ValueError.
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
        """Keep the gradient of ``var`` from being reduced."""
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
        """Add ``grads`` up. Returns the reduced sums at every n-th pass, the local sums otherwise."""
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
        """Run ``apply_grads_closure()`` at every n-th pass; at the others only count the step."""

        def apply() -> Any:
            apply_grads_closure()
            self.counter.assign(0)
            return tf.constant(True)

        def count() -> Any:
            optimizer.iterations.assign(optimizer.iterations + 1)
            return tf.constant(False)

        tf.cond(self._over(), apply, count)
        return optimizer.iterations
