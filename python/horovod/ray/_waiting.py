"""Waiting for Ray, with word of what for when it takes long."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping

import ray

from horovod.ray import _resources
from horovod.ray._saying import say

_FIRST_WORD_S = 5.0
_MOST_BETWEEN_WORDS_S = 60.0


def until(ref: Any, timeout_s: float, what: Callable[[], str]) -> bool:
    """Wait until ``ref`` is there, and raise if it is an error. False if that takes more than ``timeout_s`` seconds.

    After 5 s, and then ever more seldom, the driver says what it waits for.
    """
    end, pause = time.monotonic() + timeout_s, _FIRST_WORD_S
    while True:
        left = max(0.0, end - time.monotonic())
        ready, _ = ray.wait([ref], timeout=min(pause, left))
        if ready:
            ray.get(ref)
            return True
        if time.monotonic() >= end:
            return False
        say(f"waiting for {what()}")
        pause = min(2 * pause, _MOST_BETWEEN_WORDS_S)


def for_workers(refs: list[Any], timeout_s: float, resources: Mapping[str, float], reserved: bool) -> list[Any]:
    """Wait until all workers have answered, and return the answers.

    ``resources`` are what each worker takes; ``reserved`` says that there is room for all.
    """
    pending, end, pause = refs, time.monotonic() + timeout_s, _FIRST_WORD_S
    while True:
        left = max(0.0, end - time.monotonic())
        ready, pending = ray.wait(pending, num_returns=len(pending), timeout=min(pause, left))
        ray.get(ready)  # raises what keeps a worker from starting
        if not pending:
            return list(ray.get(refs))
        text = f"{len(pending)} of {len(refs)} workers to start"
        if not reserved:
            text += f", which need {_resources.words(resources)} each. {_resources.there()}"
        if time.monotonic() >= end:
            raise TimeoutError(f"{_resources.TIMED_OUT} Waited {timeout_s:g} s for {text}")
        say(f"waiting for {text}")
        pause = min(2 * pause, _MOST_BETWEEN_WORDS_S)
