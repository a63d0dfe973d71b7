"""The process group: torch.distributed's collectives, on top of the engine's."""

from __future__ import annotations

from horovod.torch.distributed._capabilities import Capabilities
from horovod.torch.distributed._monitored_barrier import MonitoredBarrier
from horovod.torch.distributed._tracking import Tracking


class ProcessGroup(Tracking, MonitoredBarrier, Capabilities):
    """A group of ranks whose collectives run on the engine. ``torch.distributed`` makes it; all members do.

    Ranks in arguments are ranks in the group. Tensors that are only moved may have any dtype; tensors that are reduced
    may have the dtypes of ``horovod.torch.allreduce``, or complex ones. They must be dense. Tensors that are not
    contiguous, or not in host memory, go through copies. Every method starts the operation and returns a :class:`Work`.
    Its ``wait`` raises HorovodInternalError, a RuntimeError, if the ranks disagree about shape, dtype, operation or
    order, or a rank has died. Bad arguments are a ValueError at once.

    Example:
        >>> dist.init_process_group("gorovod", init_method="horovod://")
        >>> x = torch.tensor([1.0, 2.0])
        >>> dist.all_reduce(x)
        >>> x
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """``gorovod``."""
        return "gorovod"

    _get_backend_name = getBackendName

    # PyTorch 2 keeps names in a group's backends, and this group has none.

    group_name = ""
    group_desc = ""

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, desc: str) -> None:
        self.group_desc = desc
