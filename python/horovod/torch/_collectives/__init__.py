"""Collectives on one tensor at a time, each in the module of its name."""

from horovod.torch._collectives._allgather import allgather, allgather_async
from horovod.torch._collectives._allreduce import allreduce, allreduce_, allreduce_async, allreduce_async_
from horovod.torch._collectives._alltoall import alltoall, alltoall_async
from horovod.torch._collectives._barrier import barrier
from horovod.torch._collectives._broadcast import broadcast, broadcast_, broadcast_async, broadcast_async_
from horovod.torch._collectives._join import join
from horovod.torch._collectives._reduce import reduce, reduce_, reduce_async, reduce_async_
from horovod.torch._collectives._reducescatter import reducescatter, reducescatter_async
from horovod.torch._collectives._sparse_allreduce import sparse_allreduce_async

# What users see: ``horovod.torch`` and ``horovod.torch.mpi_ops`` re-export it.
__all__ = [
    "allgather",
    "allgather_async",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "join",
    "reduce",
    "reduce_",
    "reduce_async",
    "reduce_async_",
    "reducescatter",
    "reducescatter_async",
    "sparse_allreduce_async",
]
