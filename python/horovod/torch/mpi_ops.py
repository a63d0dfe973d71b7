"""Everything that ``horovod.torch.mpi_ops`` has in Horovod: life cycle, topology, reduce operations, collectives."""

from horovod.common._job import *  # noqa: F403  what every front end has
from horovod.common._job import basics as _basics  # noqa: F401
from horovod.common._reduce_ops import *  # noqa: F403
from horovod.common._reduce_ops import handle_average_backwards_compatibility  # noqa: F401
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
from horovod.torch._submission import _handle_map, poll, synchronize  # noqa: F401
from horovod.torch.compression import Compression  # noqa: F401
