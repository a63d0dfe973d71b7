"""Horovod for JAX: ``import horovod.jax as hvd``. An addition to Horovod's interface.

The examples know ``jax.numpy`` as ``jnp``, and ``hvd.init()`` has been called, in a job of one rank.
"""

from horovod.jax import _require as _require  # noqa: I001  first: it says what is missing
from horovod.common import _job, _reduce_ops
from horovod.common._job import *  # noqa: F403
from horovod.common._reduce_ops import *  # noqa: F403
from horovod.common.exceptions import ConsistencyError, HorovodInternalError
from horovod.jax import _settling as _settling
from horovod.jax import elastic
from horovod.jax._consistency import check_consistency
from horovod.jax._errors import internal_errors
from horovod.jax.mpi_ops import (
    Compression,
    allgather,
    allgather_object,
    allreduce,
    broadcast,
    broadcast_object,
    reducescatter,
)

__all__ = [
    "Compression",
    "ConsistencyError",
    "HorovodInternalError",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "check_consistency",
    "elastic",
    "internal_errors",
    "reducescatter",
]
__all__ += _job.__all__
__all__ += _reduce_ops.__all__
