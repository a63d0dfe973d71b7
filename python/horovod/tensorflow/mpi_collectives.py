"""The names of TensorFlow's former ``tf.contrib.mpi_collectives``, where Horovod began, over Horovod's operations.

Sizes and ranks are operations, as they were there: their values are those when the graph runs. Any session will do.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from horovod.tensorflow import _collectives, mpi_ops
from horovod.tensorflow.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "allgather", "allreduce", "init", "local_rank", "rank", "size"]


def init(name: Optional[str] = None) -> Any:
    """Join the job at once.

    Args:
        name: of the operation, in a graph.

    Returns:
        None; in a graph an operation that does nothing, for programs that run it in a session.

    Example:
        >>> from horovod.tensorflow import mpi_collectives as mpi
        >>> mpi.init()
    """
    mpi_ops.init()
    return None if tf.executing_eagerly() else tf.no_op(name=name)


def size(name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks.

    Args:
        name: of the operation, in a graph.

    Returns:
        The number, an int32 scalar.

    Example:
        >>> from horovod.tensorflow import mpi_collectives as mpi
        >>> int(mpi.size())
        1
    """
    return mpi_ops.size_op(name=name)


def rank(name: Optional[str] = None) -> tf.Tensor:
    """This process's number among all ranks.

    Args:
        name: of the operation, in a graph.

    Returns:
        The number, an int32 scalar.

    Example:
        >>> from horovod.tensorflow import mpi_collectives as mpi
        >>> int(mpi.rank())
        0
    """
    return mpi_ops.rank_op(name=name)


def local_rank(name: Optional[str] = None) -> tf.Tensor:
    """This process's number on its host.

    Args:
        name: of the operation, in a graph.

    Returns:
        The number, an int32 scalar.

    Example:
        >>> from horovod.tensorflow import mpi_collectives as mpi
        >>> int(mpi.local_rank())
        0
    """
    return mpi_ops.local_rank_op(name=name)


def allreduce(tensor: Any, average: bool = True, name: Optional[str] = None) -> Any:
    """Reduce a tensor over all ranks.

    Args:
        tensor: dense, or ``tf.IndexedSlices``.
        average: divide the sum by the number of ranks.
        name: of the operation.

    Returns:
        The average or the sum, in the tensor's form.

    Example:
        >>> from horovod.tensorflow import mpi_collectives as mpi
        >>> float(mpi.allreduce(tf.constant(2.0), average=False))
        2.0
    """
    return _collectives.allreduce(tensor, op=mpi_ops.Average if average else mpi_ops.Sum, name=name)


def allgather(tensor: Any, name: Optional[str] = None) -> tf.Tensor:
    """Put the tensors of all ranks one after the other, along the first dimension.

    Args:
        tensor: of at least one dimension. The first may differ between ranks.
        name: of the operation.

    Returns:
        The tensor of all of them.

    Example:
        >>> from horovod.tensorflow import mpi_collectives as mpi
        >>> mpi.allgather(tf.constant([1, 2])).numpy().tolist()
        [1, 2]
    """
    return mpi_ops.allgather(tensor, name=name)
