"""Everything that ``horovod.torch.mpi_ops`` has in Horovod: life cycle, topology, reduce operations, collectives."""

from __future__ import annotations

from typing import Iterable, Optional, Sequence, Union

from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import ProcessSet, _setup, global_process_set  # noqa: F401
from horovod.torch._basics import (  # noqa: F401
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    _basics,
    handle_average_backwards_compatibility,
)
from horovod.torch._collectives import (  # noqa: F401
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodReducescatter,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    join,
    reducescatter,
    reducescatter_async,
    sparse_allreduce_async,
)
from horovod.torch._grouped import (  # noqa: F401
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
)
from horovod.torch._submission import _handle_map, begin_generation, forget_all, poll, synchronize  # noqa: F401
from horovod.torch.compression import Compression  # noqa: F401

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built


def init(
    comm: Optional[Iterable[int]] = None,
    process_sets: Union[None, str, Sequence[ProcessSet]] = None,
) -> None:
    _setup(_basics)
    if not _basics.is_initialized():
        begin_generation()
    _basics.init(comm, process_sets)


init.__doc__ = HorovodBasics.init.__doc__


def shutdown() -> None:
    """Leave the job. Handles that nobody synchronised are forgotten, and handles count from 1 again."""
    _basics.shutdown()
    # The engine touches no tensor any more.
    forget_all()
