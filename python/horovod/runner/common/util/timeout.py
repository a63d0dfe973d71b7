"""Time limits for tasks of several steps."""

from __future__ import annotations

import time
from typing import Type


class TimeoutException(Exception):  # noqa: N818 (Horovod's name)
    """The time is over.

    Example:
        >>> from horovod.runner.common.util.timeout import TimeoutException
        >>> issubclass(TimeoutException, Exception)
        True
    """


class Timeout:
    """A time limit for a task of several steps.

    Args:
        timeout: seconds from now.
        message: the text of the error. ``{activity}`` and ``{timeout}`` in it are replaced.
        exception: the class of the error.

    Example:
        >>> from horovod.runner.common.util.timeout import Timeout
        >>> limit = Timeout(30, "{activity} took longer than {timeout} s.")
        >>> limit.check_time_out_for("Connecting")
        >>> limit.timed_out()
        False
    """

    def __init__(self, timeout: float, message: str, exception: Type[Exception] = TimeoutException) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout
        self._message = message
        self._exception = exception

    def remaining(self) -> float:
        """How much time is left.

        Returns:
            Seconds, at least 0.
        """
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Tell whether the time is over.

        Returns:
            Whether it is.
        """
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raise the error if the time is over.

        Args:
            activity: the program's present activity, for the text of the error.

        Raises:
            TimeoutException: the time is over. It is another class if the limit was made with one.
        """
        if self.timed_out():
            raise self._exception(
                self._message.format(activity=activity, timeout=self._timeout)
                + " Try to find out what takes the additional time, or allow more of it."
            )
