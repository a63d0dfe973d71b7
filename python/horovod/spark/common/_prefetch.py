"""Runs jobs in threads ahead of the thread that takes their results, in order, while the results fit into a budget."""

from __future__ import annotations

import collections
import concurrent.futures
import threading
from typing import Any, Callable, Iterable, Iterator, NamedTuple

_MOST = 64  # how many jobs may wait to be taken, so that tiny ones do not become countless objects


class Job(NamedTuple):
    """A function to call in a thread, and about how many bytes its result takes."""

    call: Callable[[], Any]
    size: int


class _Begun(NamedTuple):
    future: concurrent.futures.Future[tuple[Any, int]]  # the result and its size
    size: int  # the job's estimate


def ahead(jobs: Iterable[Job], workers: int, budget: int, measure: Callable[[Any], int]) -> Iterator[Any]:
    """The results of the jobs, in their order. If a job raises, so does this, in its turn.

    Args:
        jobs: they begin in this order; at least one is always under way.
        workers: how many run at a time.
        budget: jobs begin as long as the results that were not taken stay within this many bytes.
        measure: returns the true size of a result. It is called once for each, in a thread.
    """

    def measured(call: Callable[[], Any]) -> tuple[Any, int]:
        result = call()
        return result, measure(result)

    begun: collections.deque[_Begun] = collections.deque()
    rest = iter(jobs)
    following = next(rest, None)
    pool = concurrent.futures.ThreadPoolExecutor(max(workers, 1), thread_name_prefix="horovod-reader")
    try:
        while begun or following is not None:
            while following is not None and _has_room(begun, following.size, budget):
                begun.append(_Begun(pool.submit(measured, following.call), following.size))
                following = next(rest, None)
            yield begun.popleft().future.result()[0]
    finally:
        for each in reversed(begun):  # the last first, so that none begins that waits for a cancelled one
            each.future.cancel()
        pool.shutdown(wait=True)


def _has_room(begun: collections.deque[_Begun], size: int, budget: int) -> bool:
    if not begun:
        return True
    held = (f.result()[1] if f.done() and f.exception() is None else expected for f, expected in begun)
    return len(begun) < _MOST and sum(held) + size <= budget


class InTurn:
    """The values of an iterator for several jobs, each of which takes one: job number n takes the nth."""

    def __init__(self, values: Callable[[], Iterator[Any]]) -> None:
        self._make = values
        self._values: Iterator[Any] = iter(())
        self._next = 0
        self._broken = False
        self._turn = threading.Condition()

    def take(self, number: int) -> Any:
        """The value with that number. Waits for the jobs before it, which must have begun."""
        with self._turn:
            self._turn.wait_for(lambda: self._next == number or self._broken)
            if self._broken:
                raise RuntimeError("the part before this one could not be read")
            try:
                if number == 0:
                    self._values = self._make()
                value = next(self._values)
            except BaseException:
                self._broken = True
                raise
            finally:
                self._next += 1
                self._turn.notify_all()
            return value
