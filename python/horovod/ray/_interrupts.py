"""Ending a running call of a worker: the driver makes its function raise KeyboardInterrupt.

Ray cannot end a method of an actor, only the process; with ``ray.cancel`` the process still begins the calls that it
has received. So a task on the worker's node sends a signal to the worker's process. It is not SIGINT, because Ray's
processes block that: a terminal sends it to all processes of a cluster that a program has started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any, Iterable, Iterator, Sequence

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray._facts import Place

_SIGNAL = signal.SIGRTMIN + 9 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR1
_SENT_S = 5.0

_hears = False  # the main thread runs code that an interrupt may end


def prepare() -> bool:
    """In a worker's process: make the signal end only code inside :func:`heard`. False if that is impossible."""
    if threading.current_thread() is not threading.main_thread():
        return False
    signal.signal(_SIGNAL, _interrupt)
    return True


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Run user's code. An interrupt raises KeyboardInterrupt in it."""
    global _hears
    try:
        _hears = True
        yield
    finally:
        _hears = False


def _interrupt(number: int, frame: Any) -> None:
    global _hears
    if _hears:
        _hears = False  # so that a second interrupt does not disturb the handling of the first
        raise KeyboardInterrupt("the driver has been interrupted")


def send(places: Iterable[Place]) -> None:
    """In the driver: interrupt the ranks at these places. Returns when the signals are sent, or after some seconds."""
    of_node: dict[str, list[int]] = {}
    for place in places:
        if not place.facts.hears:
            continue
        of_node.setdefault(place.facts.node_id, []).append(place.facts.pid)
    sent = []
    for node_id, pids in of_node.items():
        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = ray.remote(_signal_all).options(
            name="horovod: interrupt", num_cpus=0, scheduling_strategy=there, max_retries=0
        )
        sent.append(task.remote(pids))
    ray.wait(sent, num_returns=len(sent), timeout=_SENT_S)
    for ref in sent:
        ref.future()  # a node that is gone needs none


def _signal_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _SIGNAL)
