"""Everything that ``horovod.torch.mpi_ops`` has in Horovod: life cycle, topology, reduce operations, collectives."""

from horovod.common._job import *  # noqa: F403  what every front end has
from horovod.common._job import basics as _basics  # noqa: F401
from horovod.common._reduce_ops import *  # noqa: F403
from horovod.common._reduce_ops import handle_average_backwards_compatibility  # noqa: F401
from horovod.torch._collectives import *  # noqa: F403
from horovod.torch._collectives._allgather import HorovodAllgather  # noqa: F401
from horovod.torch._collectives._allreduce import HorovodAllreduce  # noqa: F401
from horovod.torch._collectives._alltoall import HorovodAlltoall  # noqa: F401
from horovod.torch._collectives._broadcast import HorovodBroadcast  # noqa: F401
from horovod.torch._collectives._reducescatter import HorovodReducescatter  # noqa: F401
from horovod.torch._grouped import *  # noqa: F403
from horovod.torch._grouped import (  # noqa: F401
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
)
from horovod.torch._submission import _handle_map, poll, synchronize  # noqa: F401
from horovod.torch.compression import Compression  # noqa: F401
