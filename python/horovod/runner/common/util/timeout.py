"""Time limits for things that are done in several steps."""

from __future__ import annotations

import time
from typing import Type


class TimeoutException(Exception):  # noqa: N818 (Horovod's name)
    """The time is over."""


class Timeout:
    """``timeout`` seconds from now. ``message`` may have ``{activity}`` and ``{timeout}`` in it."""

    def __init__(self, timeout: float, message: str, exception: Type[Exception] = TimeoutException) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._message = message
        self._exception = exception

    def remaining(self) -> float:
        """How many seconds are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raise the exception, with its message about ``activity``, if the time is over."""
        if self.timed_out():
            raise self._exception(
                self._message.format(activity=activity, timeout=self._timeout)
                + " Try to find out what takes the additional time, or allow more of it."
            )
