"""Elastic training with JAX: ``@hvd.elastic.run`` around a training function, and the state that it works on.

    @hvd.elastic.run
    def train(state):
        while state.step < steps:
            state.weights = step(state.weights, batch(state.step))
            state.step += 1
            state.commit()

    state = hvd.elastic.JaxState(weights=weights, step=0)
    train(state)

The loop and its rules are those of :mod:`horovod.common.elastic`. An array from a compiled program may show its error
only when it is used; ``state.commit()`` uses all arrays.
"""

from __future__ import annotations

from typing import Any, Callable

import jax

from horovod.common import _lib, _training
from horovod.common.elastic import ObjectState
from horovod.jax._errors import internal_error
from horovod.jax.mpi_ops import broadcast_object, rank

__all__ = ["JaxState", "internal_error", "run"]


class JaxState(ObjectState):
    """Arrays, trees of them and other picklable values, each an attribute named by its keyword.

    Args:
        kwargs: the values.

    Example:
        >>> state = hvd.elastic.JaxState(weights=jnp.zeros(2), step=0)
        >>> state.step = 1
        >>> state.restore()
        >>> state.step
        0
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)

    def save(self) -> None:
        """Remember the values, once all arrays are computed.

        Raises:
            HorovodInternalError: a collective in the program that makes one of the arrays has failed.
        """
        with_values = {name: getattr(self, name) for name in self._saved_state}
        jax.block_until_ready(with_values)
        _lib.settle()  # a program ends, too, if the job has failed while it ran
        self._saved_state = with_values


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a :class:`JaxState`, or another ``State``.

    If the error of a collective (in a compiled program or not) or a HostsUpdatedInterrupt leaves the function, the job
    is joined anew and the function is called again; see :mod:`horovod.common.elastic`. Other exceptions propagate.

    Args:
        func: the training function.

    Returns:
        The function in its loop. It returns what ``func`` returns.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     while state.batch < 3:
        ...         state.batch += 1
        ...         state.commit()
        ...     return state.batch
        >>> train(hvd.elastic.JaxState(batch=0))
        3
    """
    return _training.run(func, internal_error)
