"""The job that this process is in: its life cycle, topology and process sets. Every front end re-exports this list.

All front ends of a process share one job, so these are the same objects in each of them: ``hvd.rank`` of
``horovod.torch`` is ``hvd.rank`` of ``horovod.tensorflow``.
"""

from horovod.common.basics import HorovodBasics
from horovod.common.process_sets import (
    ProcessSet,
    _setup,
    add_process_set,
    global_process_set,
    remove_process_set,
)

basics = HorovodBasics()
_setup(basics)

init = basics.init
shutdown = basics.shutdown
is_initialized = basics.is_initialized
start_timeline = basics.start_timeline
stop_timeline = basics.stop_timeline

size = basics.size
local_size = basics.local_size
cross_size = basics.cross_size
rank = basics.rank
local_rank = basics.local_rank
cross_rank = basics.cross_rank
is_homogeneous = basics.is_homogeneous
metrics = basics.metrics
count_samples = basics.count_samples

mpi_threads_supported = basics.mpi_threads_supported
mpi_enabled = basics.mpi_enabled
mpi_built = basics.mpi_built
gloo_enabled = basics.gloo_enabled
gloo_built = basics.gloo_built
nccl_built = basics.nccl_built
ddl_built = basics.ddl_built
ccl_built = basics.ccl_built
cuda_built = basics.cuda_built
rocm_built = basics.rocm_built

__all__ = [
    "ProcessSet",
    "add_process_set",
    "ccl_built",
    "count_samples",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "metrics",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
