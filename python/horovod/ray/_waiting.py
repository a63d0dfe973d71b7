"""Waiting for Ray, with a message about what is awaited if it takes long."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable, Mapping

import ray

from horovod.ray import _resources
from horovod.ray._saying import say

FIRST_WORD_S = 5.0
MOST_BETWEEN_WORDS_S = 60.0


def until(ref: Any, timeout_s: float, what: Callable[[], str]) -> bool:
    """Wait until ``ref`` is ready, and raise its error, if it is one. False if it takes more than ``timeout_s``
    seconds.

    After 5 s, and then ever more seldom, the driver says what it waits for.
    """
    return not _unready([ref], timeout_s, lambda _: what())


def for_workers(refs: list[Any], timeout_s: float, resources: Mapping[str, float], reserved: bool) -> list[Any]:
    """Wait until all workers have answered, and return the answers.

    ``resources`` are those of each worker; ``reserved``: there is room for all workers.
    """

    def text(pending: int) -> str:
        missing = f"{pending} of {len(refs)} workers to start"
        if reserved:
            return missing
        return f"{missing}, which need {_resources.words(resources)} each. {_resources.there()}"

    pending = _unready(refs, timeout_s, text)
    if pending:
        let_go(refs)
        raise TimeoutError(f"{_resources.TIMED_OUT} Waited {timeout_s:g} s for {text(len(pending))}")
    return list(ray.get(refs))


def let_go(refs: Iterable[Any]) -> None:
    """Say that nobody will ask for these references, so that Ray does not print their errors."""
    for ref in refs:
        ref.future()


def _unready(refs: list[Any], timeout_s: float, what: Callable[[int], str]) -> list[Any]:
    """The references that are not ready after ``timeout_s`` seconds. Raises the first error among the ready ones."""
    now = time.monotonic()
    end, pause = now + timeout_s, FIRST_WORD_S
    word, pending = now + pause, refs
    while pending:
        ready, pending = ray.wait(pending, timeout=max(0.0, min(word, end) - time.monotonic()))
        try:
            ray.get(ready)
        except BaseException:
            let_go(pending)
            raise
        now = time.monotonic()
        if now >= end:
            break
        if now >= word and pending:
            say(f"waiting for {what(len(pending))}")
            pause = min(2 * pause, MOST_BETWEEN_WORDS_S)
            word = now + pause
    return pending
