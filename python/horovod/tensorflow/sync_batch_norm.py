"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow.mpi_ops import Sum, _allreduce, size


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """Keras' BatchNormalization, with the mean and variance of all ranks' batches together.

    Batches may have different sizes; they count by the number of their elements. Only training communicates: all ranks
    must run the layer, the same number of times.

    Args:
        fused: must be False.
        kwargs: the arguments of BatchNormalization.

    Raises:
        ValueError: ``fused`` is True.

    Example:
        >>> layer = hvd.SyncBatchNormalization()
        >>> layer(tf.zeros([4, 3]), training=True).shape.as_list()
        [4, 3]
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if not hasattr(tf.keras, "ops"):  # Keras 3 has no such argument
            kwargs["fused"] = fused
        super().__init__(**kwargs)
        self.supports_jit = False  # collectives cannot be compiled by XLA

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' mean and variance of this rank's batch, in the shape that Keras wants, combined over all ranks."""
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if size() == 1:
            return mean, variance
        mask = kwargs.get("mask", args[-1] if args and tf.is_tensor(args[-1]) else None)
        count = self._count(inputs, mean, mask)
        counts = tf.zeros_like(mean) + count
        total = _allreduce(tf.stack([mean * count, counts]), op=Sum, name=self._operation("mean"))
        all_mean = total[0] / total[1]
        # Not the mean of squares minus the square of the mean, which cancels for numbers far from 0.
        squares = (variance + tf.square(mean - all_mean)) * count
        return all_mean, _allreduce(squares, op=Sum, name=self._operation("variance")) / total[1]

    def _operation(self, what: str) -> Any:
        # In a graph the node's name distinguishes layers; in eager mode only this name does.
        return f"sync_batch_normalization.{self.name}.{what}" if tf.executing_eagerly() else None

    @staticmethod
    def _count(inputs: Any, mean: Any, mask: Any) -> Any:
        """How many elements each number of ``mean`` averages."""
        count = tf.cast(tf.size(inputs), mean.dtype) / tf.cast(tf.size(mean), mean.dtype)
        if mask is None:
            return count
        mask = tf.cast(mask, mean.dtype)
        return count * tf.reduce_sum(mask) / tf.cast(tf.size(mask), mean.dtype)
