"""The workers' results, in order of rank; or the failure that caused all others."""

from __future__ import annotations

import time
from typing import Any, Optional, Sequence

import ray
from ray.exceptions import RayTaskError

from horovod.common.exceptions import HorovodInternalError
from horovod.ray import _deaths, _interrupts, _waiting
from horovod.ray._facts import Place
from horovod.ray._messages import Messages
from horovod.ray._saying import say

# Seconds to wait for the cause, once a rank has failed as a consequence of another rank's failure.
_CAUSE_S = 10.0
# Seconds to wait for the other ranks' view of a death.
_VIEW_S = 3.0
# Seconds that interrupted ranks may take before the driver goes on.
_INTERRUPTED_S = 5.0
_BETWEEN_INTERRUPTS_S = 1.0


class Call:
    """A function that the ranks execute, ``name``.

    Attributes:
        pending: the promises of the ranks that have not finished it.
    """

    def __init__(self, refs: Sequence[Any], places: Sequence[Place], name: str) -> None:
        self.pending = list(refs)
        self._refs = refs
        self._places = dict(zip(refs, places))
        self._name = name
        self._values: dict[Any, Any] = {}

    def collect(self, messages: Optional[Messages] = None) -> list[Any]:
        """Wait for the ranks' results, and return them by rank.

        Raises the first failure. If a rank fails because another rank has failed, this waits some seconds for the
        other's failure, and raises that one. If this wait is interrupted, so are the ranks.
        """
        try:
            failure = self._attend(messages or Messages())
        except BaseException:  # Ctrl-C, or an exception of a callback
            self._interrupt()
            raise
        finally:
            _waiting.let_go(self.pending)
        if failure is not None:
            raise failure from None
        return [self._values[ref] for ref in self._refs]

    def running(self) -> list[Place]:
        """The ranks that have not finished it."""
        return [self._places[ref] for ref in self.pending]

    def _attend(self, messages: Messages) -> Optional[Exception]:
        """Handle results until all have come, or a failure is known."""
        consequence: Optional[Exception] = None
        end: Optional[float] = None
        while self.pending and (end is None or time.monotonic() < end):
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, self.pending = ray.wait(self.pending, timeout=messages.limit(left))
            messages.deliver()
            for ref in ready:
                error = self._take(ref)
                if error is None:
                    continue
                if not _is_consequence(error):
                    messages.deliver()
                    return error
                if consequence is None:
                    consequence, end = error, time.monotonic() + _CAUSE_S
        messages.deliver()
        return consequence

    def _take(self, ref: Any) -> Optional[Exception]:
        """Keep a rank's result, or return its exception."""
        try:
            self._values[ref] = ray.get(ref)
            return None
        except Exception as error:
            if _deaths.is_one(error):
                places = list(self._places.values())
                return _deaths.of(self._places[ref], self._name, error, _view(self.pending), places)
            return error

    def _interrupt(self) -> None:
        """Make the ranks end it by KeyboardInterrupt."""
        end = time.monotonic() + _INTERRUPTED_S
        while self.pending and time.monotonic() < end:
            _interrupts.send(self.running())  # repeatedly: a rank that has not begun the call ignores the signal
            wait_s = min(_BETWEEN_INTERRUPTS_S, max(0.0, end - time.monotonic()))
            _, self.pending = ray.wait(self.pending, num_returns=len(self.pending), timeout=wait_s)
        if self.pending:
            who = ", ".join(map(str, self.running()))
            say(
                f"{self._name} goes on in {who}: the interrupt has not ended it within {_INTERRUPTED_S:g} s. It may be "
                "in C code, or catch KeyboardInterrupt. The next call waits for its end. To end it, call shutdown()"
            )


def _view(pending: list[Any]) -> str:
    """The report of the first other rank that fails because of a death; empty if none does so soon."""
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
    """Whether a rank raised it because another rank has failed."""
    return isinstance(error, HorovodInternalError) or (
        isinstance(error, RayTaskError) and isinstance(error.cause, HorovodInternalError)
    )
