"""The code that the two gradient aggregation helpers share: the one for graphs, and the one for eager mode."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.tensorflow._reduction import LocalGradients, to_dense


class LocalGradientAggregation:
    """Sums gradients locally, and reduces the sums at every n-th pass. A derived class keeps the sums."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet,
        scale_local_gradients: bool,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.process_set = process_set
        self.counter: Any = None  # how many passes are in the sums
        self._local = LocalGradients(process_set, scale_local_gradients)

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of a variable from being reduced.

        Args:
            var: the variable.
        """
        self._local.register(var)

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
        present = [i for i, g in enumerate(grads) if g is not None]
        outputs = self._sums_of(grads, present, [vars[i] for i in present])
        results: list[Any] = [None] * len(grads)
        for i, g in zip(present, outputs if isinstance(outputs, (list, tuple)) else [outputs]):
            results[i] = g
        return results

    def _sums_of(self, grads: Sequence[Any], present: list[int], vars: list[Any]) -> Any:
        """Add up the gradients with numbers ``present``, of ``vars``. Returns what the sums now represent."""
        raise NotImplementedError

    def _reduced(self, sums: list[Any], vars: list[Any]) -> list[Any]:
        """The sums of all passes, reduced and, if wanted, divided by the number of passes."""
        n = self.backward_passes_per_step if self.average_aggregated_gradients else 1
        reduced = self._local.reduced_or_scaled(sums, vars, self.allreduce_func)
        return [value / n if n > 1 else tf.identity(value) for value in reduced]
