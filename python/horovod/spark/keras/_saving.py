"""Keras models and optimizers as bytes and plain values, for Keras 2 and 3."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from typing import Any, Iterator, Mapping, Optional

import h5py
import tensorflow as tf


def dump(model: Any) -> bytes:
    """A model, with its weights, as bytes of a ``.keras`` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def load(data: bytes, custom_objects: Optional[Mapping[str, Any]]) -> Any:
    """The model that :func:`dump` got, not compiled. The bytes are the user's own model, which may contain code.

    Args:
        data: the bytes.
        custom_objects: the user's classes and functions in it, by name.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(data)
        known = dict(custom_objects or {})
        return tf.keras.models.load_model(path, custom_objects=known, compile=False, safe_mode=False)


def restore(model: Any, optimizer: str, checkpoint: bytes) -> None:
    """Give a compiled model, and its optimizer, the values of a checkpoint. No code of the checkpoint runs.

    Args:
        model: the model.
        optimizer: the user's class of its optimizer, which Keras may have wrapped.
        checkpoint: of an earlier training.

    Raises:
        Exception: the checkpoint is damaged, or of a model with other layers or another optimizer.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(checkpoint)
        model.optimizer.build(model.trainable_variables)
        with zipfile.ZipFile(path) as archive:
            _refuse_other(model, optimizer, json.loads(archive.read("config.json")))
            with archive.open("model.weights.h5") as weights:
                _refuse_other_state(model.optimizer, weights)
        model.load_weights(path)


def _refuse_other(model: Any, optimizer: str, saved: Mapping[str, Any]) -> None:
    """Raise ValueError if a checkpoint has other layers than the model, or another optimizer.

    Names do not count, because Keras numbers the layers of one program.
    """
    there, here = (list(_layers(config)) for config in (saved, {"config": model.get_config()}))
    if there != here:
        raise ValueError(f"its layers are {', '.join(there)}, those of the model {', '.join(here)}")
    theirs = ((saved.get("compile_config") or {}).get("optimizer") or {}).get("class_name", optimizer)
    if theirs != optimizer:
        raise ValueError(f"its optimizer is {theirs}, that of the training {optimizer}")


def _refuse_other_state(optimizer: Any, weights: Any) -> None:
    """Raise ValueError if the file has a different number of optimizer variables: Keras would skip them."""
    with h5py.File(weights, "r") as file:
        count = len(file.get("optimizer/vars", ()))
    if count != len(optimizer.variables):
        raise ValueError(
            f"its optimizer has {count} variables, that of the training {len(optimizer.variables)}: it has other "
            "settings, or the model other layers to train"
        )


def _layers(described: Mapping[str, Any]) -> Iterator[str]:
    """The classes of all layers, in order, from Keras's description of a model."""
    config = described.get("config") or {}
    for layer in config.get("layers") or () if isinstance(config, Mapping) else ():
        yield layer["class_name"]
        yield from _layers(layer)


def shapes(shape: Any) -> list[tuple[Any, ...]]:
    """``model.input_shape`` or ``model.output_shape`` as a list: one for each input or output."""
    several = shape and all(isinstance(part, (list, tuple)) for part in shape)
    return [tuple(part) for part in shape] if several else [tuple(shape)]
