"""Elastic training with Keras: the state of a model and its optimizer, and callbacks that keep it up to date.

As in :mod:`.callbacks`, ``_keras`` is the module of Keras that a class is for.
"""

from __future__ import annotations

from typing import Any, Callable, ContextManager

from horovod._keras import _frameworks
from horovod._keras._sharded import is_sharded
from horovod._keras.callbacks import Logs, optimizer_variables
from horovod.common import _job, _training
from horovod.common._committed_tables import StateWithTables
from horovod.common._tables import Table
from horovod.common.elastic import ObjectState


def run(keras: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a ``KerasState``, or another ``State``.

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
        >>> train(hvd.elastic.KerasState(built_model, batch=0))
        3
    """
    return _training.run(func, lambda error: _frameworks.framework(keras).internal_error(error))


class State(StateWithTables, ObjectState):
    """The weights of a model, the variables of its optimizer, and plain values, each an attribute by its keyword.

    A commit also saves the rows of each sparse table of the model.

    Args:
        model: a built model.
        optimizer: the model's by default; it is built for the model, too.
        kwargs: the plain values; and ``tables``: a list of further layers with sparse tables, or of tables' handles.

    Raises:
        ValueError: the model is not built.
        NotImplementedError: the optimizer is sharded.
        TypeError: a plain value holds a layer with weights or an optimizer, as a callback with a model does; or
            ``tables`` has something without a table.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> model.build((None, 2))
        >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        >>> state.epoch = 1
        >>> state.restore()
        >>> state.epoch
        0
    """

    _keras: Any

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built or not model.weights:
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model, self.tables = model, kwargs.pop("tables", ())
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        if is_sharded(self.optimizer):
            raise NotImplementedError(
                "elastic state does not work with a sharded optimizer: a lost rank's share of its state is lost. Leave "
                "out sharded=True"
            )
        _build(self.optimizer, model)
        self._save_variables()
        super().__init__(bcast_object=self._broadcast_object, get_rank=_job.rank, **kwargs)

    def _converting(self) -> ContextManager[None]:
        return _training.converting(_frameworks.framework(self._keras).internal_error)

    def _broadcast_object(self, obj: Any) -> Any:
        with self._converting():
            return _frameworks.framework(self._keras).broadcast_object(obj, root_rank=0)

    def _variables(self) -> list[Any]:
        return [*self.model.weights, *optimizer_variables(self.optimizer)]

    def _sparse_tables(self) -> list[Table]:
        return self._tables_of(self.model._flatten_layers())

    def _save_variables(self) -> None:
        variables = self._variables()
        if _frameworks.major(self._keras) == 3:
            self._values = [self._keras.ops.convert_to_numpy(v).copy() for v in variables]
        else:
            self._values = self._keras.backend.batch_get_value(variables)

    def save(self) -> None:
        """Remember a copy of the variables, and the values."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Set variables and values to what they were at the last :meth:`save`."""
        pairs = list(zip(self._variables(), self._values))
        if _frameworks.major(self._keras) == 3:
            for variable, value in pairs:
                variable.assign(value)
        else:
            self._keras.backend.batch_set_value(pairs)
        super().restore()

    def _saved(self) -> Any:
        return self._values, super()._saved()

    def _take_saved(self, saved: Any) -> None:
        self._values, values = saved
        super()._take_saved(values)

    def sync(self) -> None:
        """Set variables and values to those of rank 0, on all ranks, and remember them. Blocks."""
        with self._converting():
            _frameworks.framework(self._keras).broadcast_variables(self._variables(), 0)
        self._save_variables()
        super().sync()


def _build(optimizer: Any, model: Any) -> None:
    """Make ``optimizer`` create its variables, so that it has the same ones on all ranks."""
    if hasattr(optimizer, "_create_all_weights"):  # a legacy optimizer of Keras 2
        optimizer._create_all_weights(model.trainable_variables)
    elif hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        optimizer.build(model.trainable_variables)


class CommitState:
    """Commits ``state`` every ``batches_per_commit`` batches, and at the end of each epoch.

    Place it after the callbacks that change the state. A commit costs a copy of the model.

    Args:
        state: the state.
        batches_per_commit: how many batches lie between two commits.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> model.build((None, 2))
        >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        >>> callback = hvd.elastic.CommitStateCallback(state, batches_per_commit=2)
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback], verbose=0)
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        """Count from the start."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Commit, if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Commit."""
        self.state.commit()


class UpdateBatchState:
    """Keeps ``state.batch``: the number of the last finished batch of the epoch, 0 after an epoch.

    After a restart, ``params["steps"]`` of the first epoch is smaller by the batches that were finished before. Not all
    versions of Keras use it: also pass ``steps_per_epoch`` to ``fit`` if an epoch must not start over.

    Args:
        state: the state, which has a value ``batch``.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> model.build((None, 2))
        >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        >>> callback = hvd.elastic.UpdateBatchStateCallback(state)
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback], verbose=0)
        >>> state.batch
        0
    """

    params: Any  # set by Keras

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Forget how many steps an epoch has."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Leave the finished batches out of the first epoch."""
        if not self.params.get("steps"):
            return
        if self.steps_per_epoch is None:
            self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch
        else:
            self.params["steps"] = self.steps_per_epoch

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Note the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Begin again."""
        self.state.batch = 0


class UpdateEpochState:
    """Keeps ``state.epoch``: how many epochs are finished, including those before a restart.

    After a restart pass ``epochs=total - state.epoch`` to ``fit``.

    Args:
        state: the state, which has a value ``epoch``.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> model.build((None, 2))
        >>> state = hvd.elastic.KerasState(model, batch=0, epoch=0)
        >>> callback = hvd.elastic.UpdateEpochStateCallback(state)
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, callbacks=[callback], verbose=0)
        >>> state.epoch
        3
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Logs = None) -> None:
        """Note how many epochs are finished already."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Note the epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1
