"""Which framework Keras runs on, and the module that speaks to it.

Such a module offers

- ``Compression``: that of the front end of the framework,
- ``broadcast_object``: that of the front end, too,
- ``Gradients``: what a distributed optimizer does with gradients,
- ``prepare(optimizer, is_distributed)``: called for each optimizer that is made a distributed one; ``is_distributed``
  tells for any optimizer whether it has been,
- ``broadcast_variables(variables, root_rank, process_set)``: of Keras, in place,
- ``broadcast_global_variables(root_rank, process_set)``: where there are such,
- ``allreduce``, ``allgather``, ``broadcast``, ``reducescatter``: of arrays and what can be made one, as tensors,
- ``internal_error(error)``: what an exception of the framework is to an elastic job.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def major(keras: Any) -> int:
    """2 or 3: the version of a module of Keras."""
    return 3 if hasattr(keras, "ops") else 2


def backend(keras: Any) -> str:
    """The name of the framework that ``keras`` runs on."""
    return keras.backend.backend() if major(keras) == 3 else "tensorflow"


def framework(keras: Any) -> ModuleType:
    """The module for the framework of ``keras``. Raises ImportError if there is none."""
    name = backend(keras)
    if name == "tensorflow":
        from horovod._keras import _tensorflow

        return _tensorflow
    if name == "torch":
        from horovod._keras import _torch

        return _torch
    if name == "jax":
        from horovod._keras import _jax

        return _jax
    raise ImportError(f"Keras runs on {name} here; horovod.keras works on TensorFlow, PyTorch and JAX")
