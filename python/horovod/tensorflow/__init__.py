"""Horovod for TensorFlow: ``import horovod.tensorflow as hvd``.

The examples know TensorFlow as ``tf``, and ``hvd.init()`` has been called, in a job of one rank.
"""

from horovod.tensorflow import _require as _require  # noqa: I001  first: it says what is missing
from typing import Any

from horovod.common import _job, _reduce_ops
from horovod.common._job import *  # noqa: F403
from horovod.common._reduce_ops import *  # noqa: F403
from horovod.common.exceptions import ConsistencyError, HorovodInternalError
from horovod.common.util import check_extension
from horovod.tensorflow import elastic
from horovod.tensorflow._collectives import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from horovod.tensorflow._consistency import check_consistency
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from horovod.tensorflow.mpi_ops import (
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.util import _executing_eagerly  # noqa: F401  programs ask for it here

__all__ = [
    "PartialDistributedGradientTape",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "ConsistencyError",
    "HorovodInternalError",
    "SyncBatchNormalization",  # noqa: F405  see __getattr__
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "check_consistency",
    "check_extension",
    "elastic",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
__all__ += _job.__all__
__all__ += _reduce_ops.__all__


def __getattr__(name: str) -> Any:
    """SyncBatchNormalization is a layer of Keras, so Keras is imported only if a program uses it."""
    if name == "SyncBatchNormalization":
        from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
