"""Elastic training: ``@hvd.elastic.run`` around a training function, and the state that it works on.

@hvd.elastic.run
def train(state):
    while state.batch < batches:
        step()
        state.batch += 1
        state.commit()

state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)
train(state)
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod._keras.elastic import State as _KerasState
from horovod.common import _training
from horovod.common._committed_tables import StateWithTables
from horovod.common._tables import Table
from horovod.common.elastic import ObjectState, run_fn
from horovod.tensorflow._errors import internal_error
from horovod.tensorflow.functions import broadcast_object, broadcast_variables
from horovod.tensorflow.mpi_ops import init, rank, shutdown

# Programs also import run_fn, init and shutdown from here, to write a loop of their own.
__all__ = ["TensorFlowKerasState", "TensorFlowState", "init", "run", "run_fn", "shutdown"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a :class:`TensorFlowState`, or another ``State``.

    If the error of a collective or a HostsUpdatedInterrupt leaves the function, the job is joined anew and the function
    is called again; see :mod:`horovod.common.elastic`. Other exceptions propagate.

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
        >>> train(hvd.elastic.TensorFlowState([], batch=0))
        3
    """
    return _training.run(func, internal_error)


class TensorFlowKerasState(_KerasState):
    """The weights of a Keras model, the variables of its optimizer, and plain values, each an attribute by its keyword.

    A commit also saves the rows of each sparse table of the model.

    Args:
        model: a built model of ``tf.keras``.
        optimizer: the model's by default; it is built for the model, too.
        backend: accepted as in Horovod.
        kwargs: the plain values; and ``tables``: a list of further layers with sparse tables, or of tables' handles.

    Raises:
        ValueError: the model is not built.
        TypeError: ``tables`` has something without a table.

    Example:
        >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        >>> model.build((None, 2))
        >>> hvd.elastic.TensorFlowKerasState(model, batch=0).batch
        0
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)

    @property
    def _keras(self) -> Any:  # a property, so that Keras is imported only if a program uses this class
        return tf.keras


class TensorFlowState(StateWithTables, ObjectState):
    """TensorFlow variables, and plain values, each an attribute by its keyword.

    Args:
        variables: all global variables by default.
        session: in a graph, the session to use; the default session by default.
        kwargs: the plain values; and ``tables``: a list of layers with sparse tables, or of tables' handles. A commit
            also saves their rows.

    Raises:
        TypeError: a plain value holds a variable, or ``tables`` has something without a table.

    Example:
        >>> w = tf.Variable(1.0)
        >>> state = hvd.elastic.TensorFlowState([w], batch=0)
        >>> _ = w.assign(2.0)
        >>> state.restore()
        >>> float(w)
        1.0
    """

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Optional[Any] = None, **kwargs: Any) -> None:
        self.tables = kwargs.pop("tables", ())
        self.variables = list(variables) if variables is not None else tf.compat.v1.global_variables()
        self.session: Any = session
        if session is None and not tf.executing_eagerly():
            self.session = tf.compat.v1.get_default_session()
        self._broadcast: Any = None
        self._values = self._read()
        super().__init__(bcast_object=self._broadcast_object, get_rank=rank, **kwargs)

    def _broadcast_object(self, obj: Any) -> Any:
        with _training.converting(internal_error):
            return broadcast_object(obj, session=self.session)

    def _sparse_tables(self) -> list[Table]:
        return self._tables_of(())

    def _what_to_do(self, held: Any) -> str:
        return "Pass its variables: TensorFlowState([*variables, *optimizer.variables], ...)"

    def _read(self) -> list[Any]:
        if tf.executing_eagerly():
            return [v.numpy() for v in self.variables]
        return self.session.run(self.variables)

    def save(self) -> None:
        """Remember a copy of the variables, and the values."""
        self._values = self._read()
        super().save()

    def restore(self) -> None:
        """Set the variables and values to what they were at the last :meth:`save`."""
        for variable, value in zip(self.variables, self._values):
            if tf.executing_eagerly():
                variable.assign(value)
            else:
                variable.load(value, self.session)
        super().restore()

    def _saved(self) -> Any:
        return self._values, super()._saved()

    def _take_saved(self, saved: Any) -> None:
        self._values, values = saved
        super()._take_saved(values)

    def sync(self) -> None:
        """Set the variables and values to those of rank 0, on all ranks, and remember them. Blocks."""
        with _training.converting(internal_error):
            if tf.executing_eagerly():
                broadcast_variables(self.variables, root_rank=0)
            else:
                if self._broadcast is None:
                    self._broadcast = broadcast_variables(self.variables, root_rank=0)
                self.session.run(self._broadcast)
        self._values = self._read()
        super().sync()
