"""The process group: torch.distributed's collectives, on top of the engine's."""

from __future__ import annotations

import datetime
from typing import Any

import torch

from horovod.torch.distributed._messages import Messages
from horovod.torch.distributed._moves import Moves
from horovod.torch.distributed._reductions import Reductions


class ProcessGroup(Reductions, Moves, Messages):
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

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Set the time-out of later operations."""
        self._timeout = timeout

    # PyTorch 2 keeps names in a group's backends, and this group has none.

    group_name = ""
    group_desc = ""

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, desc: str) -> None:
        self.group_desc = desc

    # PyTorch 2 asks a group's backends what they support. This group has none, so it answers itself.

    supports_coalescing = False
    supports_splitting = False

    def _get_backend(self, _: torch.device) -> ProcessGroup:
        return self

    def _start_coalescing(self, *_: Any) -> None:
        """Operations start at once, so nothing has to be collected."""

    def _end_coalescing(self, *_: Any) -> None:
        """See :meth:`_start_coalescing`."""

    def _set_sequence_number_for_group(self) -> None:
        """Operations are counted from 0 anyway."""
