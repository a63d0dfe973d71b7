"""One Work for several operations."""

from __future__ import annotations

import datetime
import time
from typing import Sequence

from horovod.torch.distributed import _callbacks, _ends
from horovod.torch.distributed._work import Work, hold


class Coalesced(Work):
    """It ends when all of ``works`` have ended, and fails with the first one that failed."""

    def __init__(self, works: Sequence[Work], timeout: datetime.timedelta) -> None:
        outputs = [t for w in works for t in w._outputs]
        origin = _callbacks.of_several([w._origin for w in works if w._origin is not None])
        super().__init__(f"a group of {len(works)} operations", outputs, timeout, origin)
        self._works = list(works)
        hold(self)

    def _await(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        return all(work._over or work._await(max(deadline - time.monotonic(), 0.0)) for work in self._works)

    def _outcome(self) -> None:
        for work in self._works:
            work._conclude()
        for work in self._works:
            work.wait()

    def _ended(self) -> bool:
        """Whether all have ended; makes no call that blocks."""
        return self._await(0.0)

    def _see_to(self) -> None:
        _ends.see_to(self)
