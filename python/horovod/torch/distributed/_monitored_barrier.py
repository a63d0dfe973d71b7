"""A barrier that names the ranks that are late.

    rank r ── arrival ──▶ rank 0, which waits for all until the time-out ── who is late ──▶ every rank

Each rank sends one arrival and gets one answer for each barrier, in order. So an arrival that comes too late is that of
its own barrier, and not of the next one.
"""

from __future__ import annotations

import datetime
import time
from typing import Optional

import torch

from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.distributed import _memory
from horovod.torch.distributed._base import Base
from horovod.torch.distributed._messages import Message

# The engine's tags of arrivals and answers, of group 0; below are those of _sets.
_ARRIVAL = (1 << 31) | 1 << 12
_ANSWER = (1 << 31) | 1 << 13
# How much longer than rank 0 the others wait for its answer.
_GRACE = datetime.timedelta(seconds=2)


class MonitoredBarrier(Base):
    """The part of a group that has the barrier."""

    def monitored_barrier(self, timeout: Optional[datetime.timedelta] = None, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have called this.

        Raises HorovodInternalError on all ranks if some have not within ``timeout``, by default the group's. It names
        the first one that rank 0 has missed, or all of them if ``wait_all_ranks``.
        """
        limit = timeout or self._timeout
        late = torch.zeros(self.size(), dtype=torch.uint8, device="cpu")
        if self._rank == 0:
            deadline = time.monotonic() + limit.total_seconds()
            here = [torch.zeros(1, dtype=torch.uint8, device="cpu") for _ in range(self.size())]
            arrivals = [self._message(here[rank], rank, _ARRIVAL, limit, receive=True) for rank in self._others()]
            for rank, arrival in zip(self._others(), arrivals):
                if not arrival._await(max(deadline - time.monotonic(), 0.0)):
                    late[rank] = 1
                    if not wait_all_ranks:
                        break
                else:
                    arrival.wait()
            for rank in self._others():
                self._message(late, rank, _ANSWER, limit, receive=False)
        else:
            self._message(late, 0, _ARRIVAL, limit, receive=False, count=1)
            self._message(late, 0, _ANSWER, limit + _GRACE, receive=True).wait()
        missing = late.nonzero().flatten().tolist()
        if missing:
            ranks = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} have"
            raise HorovodInternalError(
                f"monitored_barrier of group {self._number}: {ranks} not come within {limit.total_seconds():g} s"
            )

    def _others(self) -> range:
        return range(1, self.size())

    def _message(
        self, tensor: torch.Tensor, rank: int, tag: int, limit: datetime.timedelta, receive: bool, count: int = 0
    ) -> Message:
        peer, number = self._ranks[rank], tag | self._number % 4096
        data = tensor[:count] if count else tensor
        size, label = _memory.size(data), _memory.dtype_label(data.dtype)

        def transfer() -> Optional[int]:
            if receive:
                _lib.recv(peer, number, data.data_ptr(), size)
            else:
                _lib.send(peer, number, label, data.data_ptr(), size)
            return rank

        name = f"monitored_barrier of group {self._number} with rank {rank}"
        return Message(name, [data], limit, ("barrier", receive, peer, number), transfer)
