"""Horovod for Keras: ``import horovod.keras as hvd``.

It is for the module ``keras``: Keras 2 on TensorFlow, or Keras 3 on TensorFlow, PyTorch or JAX, as configured.

The examples know ``keras`` and NumPy as ``np``, and ``hvd.init()`` has been called, in a job of one rank.
"""

from __future__ import annotations  # noqa: I001  _require is first: it says what is missing

from typing import Any, Optional, Sequence

from horovod.keras import _require as _require

import keras

from horovod._keras import _frameworks
from horovod._keras._sharded import distribute
from horovod._keras.saving import load_model as _load_model
from horovod.common import _job
from horovod.common._groups import Groups, resolve_groups
from horovod.common._job import *  # noqa: F403
from horovod.common._job import ProcessSet, global_process_set
from horovod.common._options import Options
from horovod.common._reduce_ops import Adasum, Average, Sum
from horovod.keras import callbacks, elastic

_framework = _frameworks.framework(keras)

Compression: Any = _framework.Compression

allreduce = _framework.allreduce
allgather = _framework.allgather
broadcast = _framework.broadcast
reducescatter = _framework.reducescatter
broadcast_global_variables = _framework.broadcast_global_variables
check_consistency = _framework.check_consistency

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
    "check_consistency",
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
    sharded: bool = False,
    elementwise: bool = False,
) -> Any:
    """Give ``optimizer`` a form that reduces gradients over the ranks before it applies them.

    Pass the result to ``model.compile``. Its class has the name of the optimizer's class, so that a saved model can be
    loaded without Horovod.

    Args:
        optimizer: one of Keras. The distributed optimizer shares its attributes, methods and variables.
        name: the name of the operations; "Distributed" and the name of the optimizer's class by default.
        device_dense, device_sparse: the devices for the arithmetic around the communication, in TensorFlow.
        compression: for the way between ranks, see :class:`Compression`.
        sparse_as_dense: turn sparse gradients into dense ones first.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        op: ``Average`` or ``Sum``.
        num_groups: deprecated form of a number of ``groups``.
        groups: a number of groups, or lists of variables whose gradients are reduced together.
        sharded: divide the optimizer's state among the ranks: each keeps and updates its share of every variable, and
            the shares are gathered after each step. For element-wise optimizers, on TensorFlow, without compression or
            groups. All ranks pass the same.
        elementwise: with ``sharded``, the promise that an optimizer from elsewhere than Keras updates each element by
            its own gradient and state alone. A small made-up variable is stepped to check it.

    Returns:
        The optimizer. Its ``register_local_var(variable)`` keeps the gradient of a variable from being reduced.

    Raises:
        TypeError, ValueError: an argument is wrong, or arguments exclude each other; or ``optimizer`` has a method of
            its own, such as ``apply_gradients``, that Horovod overrides. Or ``sharded``, and the optimizer is not known
            to be element-wise.
        NotImplementedError: ``sharded``, and Keras does not run on TensorFlow.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    """
    return PartialDistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=resolve_groups(num_groups, groups),
        sharded=sharded,
        elementwise=elementwise,
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
    sharded: bool = False,
    elementwise: bool = False,
) -> Any:
    """A :func:`DistributedOptimizer` that leaves the weights of ``local_layers`` to each rank.

    Args:
        optimizer: one of Keras. The distributed optimizer shares its attributes, methods and variables.
        name: the name of the operations; "Distributed" and the name of the optimizer's class by default.
        device_dense, device_sparse: the devices for the arithmetic around the communication, in TensorFlow.
        compression: for the way between ranks, see :class:`Compression`.
        sparse_as_dense: turn sparse gradients into dense ones first.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        op: ``Average`` or ``Sum``.
        backward_passes_per_step: how many gradients are added up before they are reduced and applied; until then steps
            are only counted.
        average_aggregated_gradients: whether these sums are divided by their number.
        groups: a number of groups, or lists of variables whose gradients are reduced together.
        process_set: the ranks that train together.
        local_layers: a layer or a list of layers, which may be built later.
        scale_local_gradients: divide gradients that are not reduced by the number of ranks.
        sharded, elementwise: as for :func:`DistributedOptimizer`; without ``local_layers`` and
            ``backward_passes_per_step``.

    Returns:
        As :func:`DistributedOptimizer`.

    Raises:
        ValueError: ``local_layers`` contains something that is no layer; or as :func:`DistributedOptimizer`.

    Example:
        >>> own = keras.layers.Dense(2)
        >>> model = keras.Sequential([own, keras.layers.Dense(1)])
        >>> optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=own)
        >>> model.compile(optimizer, loss="mse")
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
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
        sharded,
        elementwise,
    )
    if layers:
        made.register_local_layers(layers)
    return made


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]] = None,
    custom_objects: Optional[dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    return _load_model(keras, filepath, custom_optimizers, custom_objects, compression, legacy_opts)


load_model.__doc__ = _load_model.__doc__
