"""Keras models and optimizers as bytes and plain values, for Keras 2 and 3."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping, Optional

import tensorflow as tf


def dump(model: Any) -> bytes:
    """A model, with its weights, as bytes of a ``.keras`` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def load(data: bytes, custom_objects: Optional[Mapping[str, Any]], by: Any = None) -> Any:
    """The model that :func:`dump` was given, not compiled.

    Args:
        data: the bytes.
        custom_objects: classes and functions of the user's that it consists of, by name.
        by: ``hvd.load_model``, which also restores the optimizer, as a distributed one. It refuses layers that are
            Python code, for the bytes are a checkpoint of the store. Without it they are the user's own model.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(data)
        known = dict(custom_objects or {})
        if by is not None:
            return by(path, custom_objects=known)
        return tf.keras.models.load_model(path, custom_objects=known, compile=False, safe_mode=False)


def shapes(shape: Any) -> list[tuple[Any, ...]]:
    """``model.input_shape`` or ``model.output_shape`` as a list: one for each input or output."""
    several = shape and all(isinstance(part, (list, tuple)) for part in shape)
    return [tuple(part) for part in shape] if several else [tuple(shape)]
