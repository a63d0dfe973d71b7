"""Horovod for PyTorch: ``import horovod.torch as hvd``.

The examples of this package know ``torch`` and ``hvd``, and ``hvd.init()`` has been called, in a job of one rank.
"""

from horovod.torch import _version  # noqa: F401, I001  first: what follows needs a PyTorch that is new enough

from horovod.common import _job, _reduce_ops
from horovod.common._job import *  # noqa: F403
from horovod.common._reduce_ops import *  # noqa: F403
from horovod.common.exceptions import ConsistencyError, HorovodInternalError
from horovod.common.util import check_extension
from horovod.torch import _collectives, _grouped, elastic
from horovod.torch._collectives import *  # noqa: F403
from horovod.torch._consistency import check_consistency
from horovod.torch._grouped import *  # noqa: F403
from horovod.torch._sharded_embedding import ShardedEmbedding, ShardedEmbeddingBag
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import poll, synchronize
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "ConsistencyError",
    "DistributedOptimizer",
    "HorovodInternalError",
    "ShardedEmbedding",
    "ShardedEmbeddingBag",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_consistency",
    "check_extension",
    "elastic",
    "poll",
    "synchronize",
]
__all__ += _collectives.__all__
__all__ += _grouped.__all__
__all__ += _job.__all__
__all__ += _reduce_ops.__all__
