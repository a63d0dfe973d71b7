"""Waiting for a job's tasks, with messages about what is awaited, and a limit."""

from __future__ import annotations

import time
from typing import Callable

from horovod.runner.common.util.timeout import TimeoutException
from horovod.spark._saying import say

_FIRST_WORD_S = 5.0
_MOST_BETWEEN_WORDS_S = 60.0


class Patience:
    """A wait of at most ``timeout_s`` seconds.

    Args:
        timeout_s: the limit.
        what: returns what is awaited, as text; called only for a message.
        silent: say nothing before the end.
    """

    def __init__(self, timeout_s: float, what: Callable[[], str], silent: bool = False) -> None:
        self._timeout_s = timeout_s
        self._what = what
        self._silent = silent
        now = time.monotonic()
        self._end = now + timeout_s
        self._pause = _FIRST_WORD_S
        self._word = now + self._pause

    def look(self) -> None:
        """After 5 s, and then ever more seldom, say what is awaited. Raises TimeoutException at the limit."""
        now = time.monotonic()
        if now >= self._end:
            raise TimeoutException(
                f"Timed out waiting for {self._what()}: {self._timeout_s:g} s are over. Each Horovod process runs in a "
                "task of Spark, so Spark must have room for all of them at once. If it only needs more time, raise "
                "start_timeout (or HOROVOD_SPARK_START_TIMEOUT)."
            )
        if now >= self._word and not self._silent:
            say(f"waiting for {self._what()}")
            self._pause = min(2 * self._pause, _MOST_BETWEEN_WORDS_S)
            self._word = now + self._pause
