"""What the workers return, in order of rank; or the failure from which all others follow."""

from __future__ import annotations

import time
from typing import Any, NamedTuple, Optional, Sequence

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

from horovod.common.exceptions import HorovodInternalError
from horovod.ray._facts import Facts
from horovod.ray.adapter import Callbacks

# For how long the cause of another rank's failure is awaited, once a rank has told that it suffers from one.
_CAUSE_S = 10.0
_BETWEEN_LOOKS_S = 0.1


class Place(NamedTuple):
    """Which rank runs where."""

    rank: int
    facts: Facts

    def __str__(self) -> str:
        f = self.facts
        return f"rank {self.rank} (pid {f.pid} on {f.hostname}, {f.address}, node {f.node_id[:8]})"


class WorkerDiedError(ActorDiedError, RuntimeError):
    """The process of a rank has ended while the rank was to do something. ``rank`` says which."""

    def __init__(self, text: str, rank: int, actor_id: Optional[str] = None) -> None:
        RayActorError.__init__(self, actor_id, text)
        self.args = (text, rank, actor_id)
        self.rank = rank


def collect(
    refs: Sequence[Any], places: Sequence[Place], name: str, queue: Optional[Any] = None, callbacks: Callbacks = None
) -> list[Any]:
    """Wait for what the ranks return, by rank. Every message in ``queue`` goes to the callbacks meanwhile.

    Raises what has failed first. What a rank raises because another has failed is not raised if the other's failure is
    known within some seconds.
    """
    ranks = {ref: rank for rank, ref in enumerate(refs)}
    values: dict[int, Any] = {}
    pending = list(refs)
    consequence: Optional[BaseException] = None
    end = float("inf")
    while pending:
        limit = _BETWEEN_LOOKS_S if queue is not None else None
        if consequence is not None:
            limit = min(limit or _CAUSE_S, max(0.0, end - time.monotonic()))
        ready, pending = ray.wait(pending, timeout=limit)
        _deliver(queue, callbacks)
        for ref in ready:
            try:
                values[ranks[ref]] = ray.get(ref)
            except Exception as error:
                if not _is_consequence(error):
                    _deliver(queue, callbacks)
                    raise _of_rank(error, places[ranks[ref]], name) from None
                if consequence is None:
                    consequence, end = error, time.monotonic() + _CAUSE_S
        if consequence is not None and time.monotonic() >= end:
            break
    _deliver(queue, callbacks)
    if consequence is not None:
        raise consequence
    return [values[rank] for rank in range(len(refs))]


def _deliver(queue: Optional[Any], callbacks: Callbacks) -> None:
    if queue is None:
        return
    waiting = queue.size()
    if waiting > 0:  # only this process takes from it
        for message in queue.get_nowait_batch(waiting):
            for callback in callbacks or ():
                callback(message)


def _is_consequence(error: BaseException) -> bool:
    """Whether a rank raised it because another one has failed."""
    return isinstance(error, HorovodInternalError) or (
        isinstance(error, RayTaskError) and isinstance(error.cause, HorovodInternalError)
    )


def _of_rank(error: BaseException, place: Place, name: str) -> BaseException:
    """The error as that of a rank, with where the rank ran."""
    if isinstance(error, RayActorError):
        return WorkerDiedError(f"{place} has died in {name}: {error}", place.rank, error.actor_id)
    return error  # a RayTaskError names the actor, whose repr is its rank
