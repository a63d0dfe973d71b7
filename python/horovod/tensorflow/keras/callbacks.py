"""Callbacks for ``model.fit``: ``from horovod.tensorflow.keras.callbacks import …``."""

from __future__ import annotations

from typing import Union

import tensorflow as tf

from horovod._keras import callbacks as _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, tf.keras.callbacks.Callback):
    __doc__ = _impl.BroadcastGlobalVariables.__doc__
    _keras = tf.keras


class MetricAverageCallback(_impl.MetricAverage, tf.keras.callbacks.Callback):
    __doc__ = _impl.MetricAverage.__doc__
    _keras = tf.keras


class LearningRateScheduleCallback(_impl.LearningRateSchedule, tf.keras.callbacks.Callback):
    __doc__ = _impl.LearningRateSchedule.__doc__
    _keras = tf.keras


class LearningRateWarmupCallback(_impl.LearningRateWarmup, tf.keras.callbacks.Callback):
    __doc__ = _impl.LearningRateWarmup.__doc__
    _keras = tf.keras


class BestModelCheckpoint(_impl.best_model_checkpoint(tf.keras)):  # type: ignore[misc]
    """Keras' ModelCheckpoint of the best model only. Set ``filepath`` before training.

    Args:
        monitor: the metric by which models are compared.
        verbose: above 0 prints a line for each model that is saved.
        save_weights_only: save no more than the weights.
        mode: whether the least or the greatest value is the best: min, max or auto.
        save_freq: "epoch", or a number of batches.

    Raises:
        ValueError: training begins without ``filepath``.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> callback = hvd.callbacks.BestModelCheckpoint(monitor="loss")
        >>> callback.filepath = "best.keras"
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback], verbose=0)
        >>> import os
        >>> os.path.exists("best.keras")
        True
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Union[str, int] = "epoch",
    ) -> None:
        super().__init__(monitor, verbose, save_weights_only, mode, save_freq)
