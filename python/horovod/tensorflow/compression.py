"""Compression of gradients on their way through allreduce."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """What a compressor offers: two static methods, of which the second undoes the first as far as it can."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send, and what :meth:`decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16, others as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a float16 copy, and the original dtype."""
        if tensor.dtype.is_floating:
            return tf.cast(tensor, tf.float16), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its original dtype."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class Compression:
    """The compressors to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
