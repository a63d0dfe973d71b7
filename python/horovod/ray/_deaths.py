"""How the process of a rank has ended, in words."""

from __future__ import annotations

import os
import textwrap
from typing import Optional

import ray
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray._facts import Place

_LINES = 10
_MOST_COLUMNS = 300
_MOST_BYTES = 16384
_NOT_SHOWN = (":", "Extension modules:")  # Ray's marks, and a list of some kilobytes
_READ_S = 5.0
_DETAILS = "\nObject store memory usage:"  # a page of figures, which are in Ray's logs, too
# Where Ray's text about a dead actor comes to the point.
_POINTS = ("Worker exit detail: ", "The actor is dead because ")


class WorkerDiedError(RayActorError, RuntimeError):
    """The process of a rank has ended while the rank had something to do. ``rank`` says which."""

    def __init__(self, text: str, rank: int, actor_id: Optional[str] = None) -> None:
        RayActorError.__init__(self, actor_id, text)
        self.args = (text, rank, actor_id)
        self.rank = rank


def is_one(error: Exception) -> bool:
    """Whether Ray says by it that a process, or its node, has ended; or that it has killed it for its memory."""
    return isinstance(error, (RayActorError, OutOfMemoryError, NodeDiedError))


def of(place: Place, name: str, error: Exception, view: str = "") -> WorkerDiedError:
    """The death of the rank at ``place`` that Ray tells by ``error``. ``view`` is what another rank says of it."""
    text = f"{place} has died in {name}.\nRay says: {_point(str(error))}"
    if view:
        text += f"\nAnother rank says: {view}"
    lines = _last_lines(place)
    if lines:
        text += "\nThe last lines of its stderr:\n" + textwrap.indent(lines, "  ")
    return WorkerDiedError(text, place.rank, getattr(error, "actor_id", None))


def _point(text: str) -> str:
    for point in _POINTS:
        if point in text:
            text = text.partition(point)[2]
            break
    return text.partition(_DETAILS)[0].strip()


def _last_lines(place: Place) -> str:
    """The last lines that the rank's process has written to stderr, if its node still answers."""
    facts = place.facts
    if not os.path.isabs(facts.stderr) or facts.node_id not in {n["NodeID"] for n in ray.nodes() if n["Alive"]}:
        return ""
    there = NodeAffinitySchedulingStrategy(facts.node_id, soft=False)
    lines = ray.remote(_tail).options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote(facts.stderr)
    try:
        return str(ray.get(lines, timeout=_READ_S))
    except Exception:  # it is only a help
        lines.future()
        return ""


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _MOST_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = [line[:_MOST_COLUMNS] for line in text.splitlines() if line.strip() and not line.startswith(_NOT_SHOWN)]
    crash = [index for index, line in enumerate(lines) if line.startswith("Fatal Python error")]
    return "\n".join(lines[crash[-1] :][:_LINES] if crash else lines[-_LINES:])
