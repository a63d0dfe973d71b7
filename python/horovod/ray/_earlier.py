"""Calls that the ranks have not finished when the driver makes the next call, which begins after them."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple

import ray

from horovod.ray import _waiting
from horovod.ray._facts import Place
from horovod.ray._saying import say


class _Last(NamedTuple):
    """A rank's last earlier call: its function, and a reference that is ready once the call has ended."""

    place: Place
    name: str
    ended: Any


class Earlier:
    """The ranks with unfinished earlier calls, and a message to the user if they take long.

    References to the results of the calls would keep these results in memory. So each rank promises something else: to
    return nothing, after the calls.
    """

    def __init__(self) -> None:
        self._last: dict[int, _Last] = {}  # by rank

    def add(self, name: str, workers: Iterable[tuple[Place, Any]]) -> None:
        """Note that these workers have got a call, or have not finished one."""
        for place, worker in workers:
            ended = worker.idle.options(name=f"horovod: end of {name}, rank {place.rank}").remote()
            self._last[place.rank] = _Last(place, name, ended)

    def wait(self) -> None:
        """Wait until the ranks have finished them. After 5 s, and then ever more seldom, say which have not."""
        pause = _waiting.FIRST_WORD_S
        while self._last:
            refs = {last.ended: rank for rank, last in self._last.items()}
            ended, _ = ray.wait(list(refs), num_returns=len(refs), timeout=pause)
            _waiting.let_go(ended)
            for ref in ended:
                del self._last[refs[ref]]
            if self._last:
                who = ", ".join(f"{last.place} with {last.name}" for last in self._last.values())
                say(f"waiting for the end of earlier calls: {who}. To end them, call shutdown(), then start()")
                pause = min(2 * pause, _waiting.MOST_BETWEEN_WORDS_S)
