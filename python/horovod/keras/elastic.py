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
    return _impl.run(keras, func)


run.__doc__ = _impl.run.__doc__


class KerasState(_impl.State):
    __doc__ = _impl.State.__doc__
    _keras = keras


class CommitStateCallback(_impl.CommitState, keras.callbacks.Callback):
    __doc__ = _impl.CommitState.__doc__


class UpdateBatchStateCallback(_impl.UpdateBatchState, keras.callbacks.Callback):
    __doc__ = _impl.UpdateBatchState.__doc__


class UpdateEpochStateCallback(_impl.UpdateEpochState, keras.callbacks.Callback):
    __doc__ = _impl.UpdateEpochState.__doc__
