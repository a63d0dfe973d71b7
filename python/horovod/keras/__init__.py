"""Horovod for Keras: ``import horovod.keras as hvd``.

For the module ``keras``, Keras 2 on TensorFlow, or Keras 3 on TensorFlow, PyTorch or JAX, whichever it is set to use.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import keras

from horovod._keras import _frameworks
from horovod._keras._options import Options
from horovod._keras.optimizer import distribute
from horovod._keras.saving import load_model as _load_model
from horovod.common import _job
from horovod.common._groups import Groups, resolve_groups
from horovod.common._job import *  # noqa: F403
from horovod.common._job import ProcessSet, global_process_set
from horovod.common._reduce_ops import Adasum, Average, Sum
from horovod.keras import callbacks, elastic

_framework = _frameworks.framework(keras)

Compression: Any = _framework.Compression

allreduce = _framework.allreduce
allgather = _framework.allgather
broadcast = _framework.broadcast
reducescatter = _framework.reducescatter
broadcast_global_variables = _framework.broadcast_global_variables

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
__all__ += _job.__all__


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Groups = None,
) -> Any:
    """An optimizer that does what ``optimizer`` does, with gradients that are reduced over the ranks first.

    Args:
        name: of the operations; "Distributed" and the name of the optimizer's class by default.
        device_dense, device_sparse: where the arithmetic around the communication is done, in TensorFlow.
        compression: ``Compression.fp16`` and so on, used on the way.
        sparse_as_dense: turn sparse gradients into dense ones first.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        op: ``Average`` or ``Sum``.
        groups: a number of groups, or lists of variables, whose gradients are reduced as one.

    Pass the result to ``model.compile``. Its class has the name of the optimizer's, so that a saved model can be loaded
    without Horovod. ``register_local_var(variable)`` keeps the gradient of a variable from being reduced. Raises
    ValueError for what cannot be combined.
    """
    groups = resolve_groups(num_groups, groups)
    return distribute(
        keras,
        optimizer,
        name,
        Options(
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=1,
            average_aggregated_gradients=False,
            groups=groups,
            process_set=global_process_set,
            scale_local_gradients=True,
        ),
    )


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """:func:`DistributedOptimizer` that leaves the weights of ``local_layers`` (a layer or a list) to each rank.

    Args:
        backward_passes_per_step: how many gradients are added up before they are reduced and applied; until then the
            steps are only counted.
        average_aggregated_gradients: whether these sums are divided by their number.
        process_set: the ranks that train together.
        scale_local_gradients: divide gradients that are not reduced by the number of ranks.

    Layers may be built later. Raises ValueError if ``local_layers`` has something else than layers.
    """
    layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    layers = [layer for layer in layers if layer is not None]
    if not all(isinstance(layer, keras.layers.Layer) for layer in layers):
        raise ValueError("All local layers must be of keras.layers.Layer type.")
    made = distribute(
        keras,
        optimizer,
        name,
        Options(
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=resolve_groups(0, groups),
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        ),
    )
    made.register_local_layers(layers)
    return made


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]] = None,
    custom_objects: Optional[dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Load a model that Keras has saved, with or without Horovod; its optimizer becomes a distributed one.

    The optimizer keeps its state. ``custom_optimizers`` are classes that Keras does not know, ``custom_objects`` other
    objects by their names. ``legacy_opts`` loads the optimizer as one of Keras 2's legacy ones; Keras 3 has none
    (ValueError). Let all ranks load a model, or one, and a BroadcastGlobalVariablesCallback send it to the others.
    """
    return _load_model(keras, filepath, custom_optimizers, custom_objects, compression, legacy_opts)
