"""Waiting for all ranks."""

from __future__ import annotations

from horovod.common import _lib
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._submission import submit_without_tensor, synchronize


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of ``process_set`` has called this.

    Args:
        process_set: the ranks that take part.

    Raises:
        HorovodInternalError: a rank is gone.

    Example:
        >>> hvd.barrier()
    """
    synchronize(submit_without_tensor(_lib.BARRIER, process_set))
