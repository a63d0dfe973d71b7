"""The names of TensorFlow's former ``tf.contrib.mpi_collectives``, where Horovod began, over Horovod's operations.

Sizes and ranks are operations, as they were there: their values are those of the run. A session needs nothing special.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from horovod.tensorflow import _collectives, mpi_ops
from horovod.tensorflow.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "allgather", "allreduce", "init", "local_rank", "rank", "size"]


def init(name: Optional[str] = None) -> Any:
    """Join the job at once. In a graph, returns an operation that does nothing, for who runs it in a session."""
    mpi_ops.init()
    return None if tf.executing_eagerly() else tf.no_op(name=name)


def size(name: Optional[str] = None) -> tf.Tensor:
    """The number of processes, an int32 scalar."""
    return mpi_ops.size_op(name=name)


def rank(name: Optional[str] = None) -> tf.Tensor:
    """This process's number, an int32 scalar."""
    return mpi_ops.rank_op(name=name)


def local_rank(name: Optional[str] = None) -> tf.Tensor:
    """This process's number on its host, an int32 scalar."""
    return mpi_ops.local_rank_op(name=name)


def allreduce(tensor: Any, average: bool = True, name: Optional[str] = None) -> Any:
    """The average, or the sum, of ``tensor`` (dense or ``tf.IndexedSlices``) over all processes."""
    return _collectives.allreduce(tensor, op=mpi_ops.Average if average else mpi_ops.Sum, name=name)


def allgather(tensor: Any, name: Optional[str] = None) -> tf.Tensor:
    """The tensors of all processes, one after the other along the first dimension."""
    return mpi_ops.allgather(tensor, name=name)
