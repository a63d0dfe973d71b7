"""What a process group notes of each operation that it starts: for coalescing, time-outs, counts, and the profiler."""

from __future__ import annotations

import datetime
import threading
from typing import Any, Optional

import torch

from horovod.torch.distributed import _profiling
from horovod.torch.distributed._coalesced import Coalesced
from horovod.torch.distributed._messages import Messages
from horovod.torch.distributed._moves import Moves
from horovod.torch.distributed._reductions import Reductions
from horovod.torch.distributed._short import NO_TIME
from horovod.torch.distributed._work import Work

# PyTorch's names, as in the events of other backends ("gloo:all_reduce").
_EVENTS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}


class Tracking(Reductions, Moves, Messages):
    """A group whose operations are noted when they have been started."""

    def _start(self, kind: str, *args: Any, **kwargs: Any) -> Work:
        self._started += 1
        with _profiling.event(_EVENTS.get(kind, kind)):
            return self._noted(super()._start(kind, *args, **kwargs))

    def send(self, *args: Any, **kwargs: Any) -> Work:
        with _profiling.event("send"):
            return self._noted(super().send(*args, **kwargs))

    def _recv(self, *args: Any, **kwargs: Any) -> Work:
        with _profiling.event("recv"):
            return self._noted(super()._recv(*args, **kwargs))

    def _noted(self, work: Work) -> Work:
        if self._coalescing:
            collected = self._coalescing.get(threading.get_ident())
            if collected is not None:
                collected.append(work)
        return work

    def _get_sequence_number_for_group(self) -> int:
        """How many operations, without messages, this rank has started."""
        return self._started

    def _set_sequence_number_for_group(self) -> None:
        """Operations are counted from 0 anyway."""

    def _limit(self, options: Any) -> datetime.timedelta:
        extension, self._extension = self._extension, NO_TIME
        return super()._limit(options) + extension

    def _add_ephemeral_timeout(self, timeout: datetime.timedelta) -> None:
        """Give the next operation this much more time."""
        self._extension += timeout

    def _start_coalescing(self, device: Optional[torch.device] = None) -> None:
        """Collect what is started until :meth:`_end_coalescing`. It starts at once.

        PyTorch 1.13 names no device, and waits for each Work.
        """
        if device is not None:
            self._coalescing[threading.get_ident()] = []

    def _end_coalescing(self, _: Any = None) -> Optional[Work]:
        """One Work for all operations since :meth:`_start_coalescing`."""
        works = self._coalescing.pop(threading.get_ident(), None)
        if works is None:
            return None
        return works[0] if len(works) == 1 else Coalesced(works, self._timeout)
