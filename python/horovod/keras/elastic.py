"""Elastic training with Keras.

@hvd.elastic.run
def train(state):
    callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 100)]
    model.fit(dataset, epochs=epochs - state.epoch, callbacks=callbacks)

state = hvd.elastic.KerasState(model, epoch=0)
train(state)
"""

from __future__ import annotations

from typing import Any, Callable

import keras

from horovod._keras import elastic as _impl

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a :class:`KerasState`, or another ``State``.

    It is called again, after the job was joined anew, when the error of a collective or a HostsUpdatedInterrupt leaves
    it; see :mod:`horovod.common.elastic`. Other exceptions go through.

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
    return _impl.run(keras, func)


class KerasState(_impl.State):
    __doc__ = _impl.State.__doc__
    _keras = keras


class CommitStateCallback(_impl.CommitState, keras.callbacks.Callback):
    __doc__ = _impl.CommitState.__doc__


class UpdateBatchStateCallback(_impl.UpdateBatchState, keras.callbacks.Callback):
    __doc__ = _impl.UpdateBatchState.__doc__


class UpdateEpochStateCallback(_impl.UpdateEpochState, keras.callbacks.Callback):
    __doc__ = _impl.UpdateEpochState.__doc__
