"""Taking part with zeros when this rank's data has ended."""

from __future__ import annotations

from horovod.common import _lib
from horovod.common.process_sets import global_process_set
from horovod.torch._operation import last_joined
from horovod.torch._submission import submit_without_tensor, synchronize

joins_ended = 0  # of this process


def join(device: int = -1) -> int:
    """Say that this rank has no more data, and wait until all ranks have said so.

    Meanwhile this rank takes part in the allreduces of the others with zeros; averages are still divided by the number
    of all ranks. Their other operations fail unless GOROVOD_JOIN_ALL_OPS=1 is set.

    Args:
        device: where Horovod makes these zeros. No effect: on a GPU they are where this rank's tensors were, or on the
            device of its local rank.

    Returns:
        The rank that has joined last.

    Raises:
        HorovodInternalError: a rank is gone.

    Example:
        >>> hvd.join()
        0
    """
    global joins_ended
    last = synchronize(submit_without_tensor(_lib.JOIN, global_process_set, last_joined))
    joins_ended += 1
    return last
