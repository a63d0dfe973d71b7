"""What the workers return, in order of rank; or the failure from which all others follow."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Optional, Sequence

import ray
from ray.exceptions import RayTaskError

from horovod.common.exceptions import HorovodInternalError
from horovod.ray import _deaths, _waiting
from horovod.ray._facts import Place
from horovod.ray.adapter import Callbacks

# Seconds for which the cause is awaited once a rank has failed as a consequence of another one's failure.
_CAUSE_S = 10.0
# Seconds for which the other ranks' view of a death is awaited.
_VIEW_S = 3.0
_BETWEEN_LOOKS_S = 0.1


@dataclasses.dataclass
class Sender:
    """Rank 0's end of ``queue``: it says of each message which call of the driver's it belongs to."""

    queue: Any
    call: int

    def put(self, message: Any) -> None:
        """Send ``message``."""
        self.queue.put((self.call, message))


class Messages:
    """What rank 0 has logged for the driver's callbacks; nothing if ``queue`` or ``callbacks`` is None.

    Only messages of ``call`` count. The queue may have others: a call that has failed leaves rank 0 running.
    """

    def __init__(self, queue: Optional[Any] = None, callbacks: Callbacks = None, call: int = 0) -> None:
        self._queue = queue if callbacks else None
        self._callbacks = callbacks or ()
        self._call = call

    def limit(self, timeout_s: Optional[float]) -> Optional[float]:
        """For how long to wait before the next look, if the wait could take ``timeout_s`` seconds."""
        if self._queue is None:
            return timeout_s
        return _BETWEEN_LOOKS_S if timeout_s is None else min(_BETWEEN_LOOKS_S, timeout_s)

    def deliver(self) -> None:
        """Hand what has come to each callback."""
        if self._queue is None:
            return
        there = self._queue.size()
        if there > 0:  # nobody else takes from it
            for call, message in self._queue.get_nowait_batch(there):
                for callback in self._callbacks if call == self._call else ():
                    callback(message)


def collect(refs: Sequence[Any], places: Sequence[Place], name: str, messages: Optional[Messages] = None) -> list[Any]:
    """Wait for what the ranks return, by rank. ``name`` is what they do.

    Raises what has failed first. What a rank raises because another has failed is raised only if the other's failure
    does not become known within some seconds.
    """
    messages = messages or Messages()
    places_of = dict(zip(refs, places))
    values: dict[Any, Any] = {}
    pending = list(refs)
    consequence: Optional[BaseException] = None
    end: Optional[float] = None
    try:
        while pending and (end is None or time.monotonic() < end):
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, pending = ray.wait(pending, timeout=messages.limit(left))
            messages.deliver()
            for ref in ready:
                try:
                    values[ref] = ray.get(ref)
                except Exception as error:
                    if _deaths.is_one(error):
                        messages.deliver()
                        raise _deaths.of(places_of[ref], name, error, _view(pending)) from None
                    if not _is_consequence(error):
                        messages.deliver()
                        raise
                    if consequence is None:
                        consequence, end = error, time.monotonic() + _CAUSE_S
    finally:
        _waiting.let_go(pending)
    messages.deliver()
    if consequence is not None:
        raise consequence
    return [values[ref] for ref in refs]


def _view(pending: list[Any]) -> str:
    """What the first of the other ranks says that fails because of a death; empty if none does so soon."""
    end = time.monotonic() + _VIEW_S
    while pending and time.monotonic() < end:
        ready, pending = ray.wait(pending, timeout=max(0.0, end - time.monotonic()))
        for ref in ready:
            try:
                ray.get(ref)
            except HorovodInternalError as error:
                return str(getattr(error, "cause", error))
            except Exception:
                continue
    return ""


def _is_consequence(error: BaseException) -> bool:
    """Whether a rank raised it because another one has failed."""
    return isinstance(error, HorovodInternalError) or (
        isinstance(error, RayTaskError) and isinstance(error.cause, HorovodInternalError)
    )
