"""Rank 0's messages for the driver's callbacks."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from horovod.ray.adapter import Callbacks

_BETWEEN_LOOKS_S = 0.1


@dataclasses.dataclass
class Sender:
    """Rank 0's end of ``queue``: it marks each message with the driver's call that it belongs to."""

    queue: Any
    call: int

    def put(self, message: Any) -> None:
        """Send ``message``."""
        self.queue.put((self.call, message))


class Messages:
    """Rank 0's messages for the driver's callbacks; none if ``queue`` or ``callbacks`` is None.

    Only messages of ``call`` count. The queue may have others, because a failed call leaves rank 0 running.
    """

    def __init__(self, queue: Optional[Any] = None, callbacks: Callbacks = None, call: int = 0) -> None:
        self._queue = queue if callbacks else None
        self._callbacks = callbacks or ()
        self._call = call

    def limit(self, timeout_s: Optional[float]) -> Optional[float]:
        """How long to wait before the next look, in a wait of at most ``timeout_s`` seconds."""
        if self._queue is None:
            return timeout_s
        return _BETWEEN_LOOKS_S if timeout_s is None else min(_BETWEEN_LOOKS_S, timeout_s)

    def deliver(self) -> None:
        """Pass the messages that have come to each callback."""
        if self._queue is None:
            return
        there = self._queue.size()
        if there > 0:  # nobody else takes from it
            for call, message in self._queue.get_nowait_batch(there):
                for callback in self._callbacks if call == self._call else ():
                    callback(message)
