"""Which framework Keras runs on."""

from __future__ import annotations

import functools
from typing import Any

from horovod._keras._framework import Framework


def major(keras: Any) -> int:
    """2 or 3: the version of a module of Keras."""
    return 3 if hasattr(keras, "ops") else 2


def backend(keras: Any) -> str:
    """The name of the framework that ``keras`` runs on."""
    return keras.backend.backend() if major(keras) == 3 else "tensorflow"


@functools.lru_cache(maxsize=None)
def _of(name: str) -> Framework:
    if name == "tensorflow":
        from horovod._keras._tensorflow import TensorFlow

        return TensorFlow()
    if name == "torch":
        from horovod._keras._torch import Torch

        return Torch()
    if name == "jax":
        from horovod._keras._jax import Jax

        return Jax()
    raise ImportError(f"Keras runs on {name} here; horovod.keras works on TensorFlow, PyTorch and JAX")


def framework(keras: Any) -> Framework:
    """The framework of ``keras``, a module. Raises ImportError if there is none."""
    return _of(backend(keras))
