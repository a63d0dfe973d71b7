"""Horovod for ``tf.keras``: ``import horovod.tensorflow.keras as hvd``.

The examples know ``tf.keras`` as ``keras`` and NumPy as ``np``, and ``hvd.init()`` has been called, in a job of one
rank.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from horovod._keras._sharded import distribute
from horovod._keras._tensorflow import TensorFlow
from horovod._keras.saving import load_model as _load_model
from horovod.common import _job
from horovod.common._groups import Groups, resolve_groups
from horovod.common._job import *  # noqa: F403
from horovod.common._job import ProcessSet, global_process_set
from horovod.common._options import Options
from horovod.common._reduce_ops import Average, Sum
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.keras import callbacks, elastic

_framework = TensorFlow()

allreduce = _framework.allreduce
allgather = _framework.allgather
broadcast = _framework.broadcast
reducescatter = _framework.reducescatter
broadcast_global_variables = _framework.broadcast_global_variables
check_consistency = _framework.check_consistency

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
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
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    sharded: bool = False,
    elementwise: bool = False,
) -> Any:
    """Give ``optimizer`` a form that reduces gradients over the ranks before it applies them.

    Pass the result to ``model.compile``. Its class has the name of the optimizer's class, so that a saved model can be
    loaded without Horovod.

    Args:
        optimizer: one of Keras. The distributed optimizer shares its attributes, methods and variables.
        name: the name of the operations; "Distributed" and the name of the optimizer's class by default.
        device_dense, device_sparse: the device for the arithmetic around the communication, in TensorFlow.
        compression: for the way between ranks, see :class:`Compression`.
        sparse_as_dense: turn sparse gradients into dense ones first.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        op: ``Average`` or ``Sum``.
        backward_passes_per_step: how many gradients are added up before they are reduced and applied; until then steps
            are only counted.
        average_aggregated_gradients: whether these sums are divided by their number.
        num_groups: deprecated form of a number of ``groups``.
        groups: a number of groups, or lists of variables whose gradients are reduced together.
        process_set: the ranks that train together.
        scale_local_gradients: divide gradients that are not reduced by the number of ranks.
        sharded: divide the optimizer's state among the ranks: each keeps and updates its share of every variable, and
            the shares are gathered after each step. For element-wise optimizers, on TensorFlow, without compression,
            groups or ``backward_passes_per_step``. All ranks pass the same.
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
    groups = resolve_groups(num_groups, groups)
    return distribute(
        tf.keras,
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
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        ),
        sharded,
        elementwise,
    )


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]] = None,
    custom_objects: Optional[dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    return _load_model(tf.keras, filepath, custom_optimizers, custom_objects, compression, legacy_opts)


load_model.__doc__ = _load_model.__doc__
