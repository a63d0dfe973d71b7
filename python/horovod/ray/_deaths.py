"""How the process of a rank has ended, in words."""

from __future__ import annotations

import os
import re
import textwrap
import time
from typing import Optional, Sequence

import ray
from ray.exceptions import ActorUnavailableError, NodeDiedError, OutOfMemoryError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray._facts import Facts, Place

_LINES = 10
_MOST_COLUMNS = 300
_MOST_BYTES = 16384
_NOT_SHOWN = (":", "Extension modules:")  # Ray's marks, and a list of some kilobytes
_READ_S = 5.0
# How long Ray may take to say what happened to an actor whose connection has ended, or to its node.
_VERDICT_S = 30.0
_LOOKS_S = 0.5
# In Ray's text about a dead actor, the useful part begins after one of these, and ends before _END.
_POINTS = ("Worker exit detail: ", "The actor is dead because ", "The actor died because ")
_END = "\nObject store memory usage:"  # a page of figures, which are in Ray's logs, too
# Part of Ray's message about a process that it has killed because of its node's memory.
_USED = re.compile(r"was ([\d.]+)GB used / ([\d.]+)GB limit")
_ALLOWED = re.compile(r"exceeded threshold of \d+B \(([\d.]+%) of")


class WorkerDiedError(RayActorError, RuntimeError):
    """The process of a rank has ended while the rank had something to do.

    Attributes:
        rank: the rank; the lowest one if a node has ended with several.
        ranks: all ranks that have ended.
    """

    def __init__(self, text: str, rank: int, actor_id: Optional[str] = None, ranks: Sequence[int] = ()) -> None:
        RayActorError.__init__(self, actor_id, text)
        self.args = (text, rank, actor_id, ranks)
        self.rank = rank
        self.ranks = list(ranks) or [rank]


def is_one(error: Exception) -> bool:
    """Whether Ray's error means that a process or its node has ended, or that Ray has killed it because of memory."""
    return isinstance(error, (RayActorError, OutOfMemoryError, NodeDiedError))


def of(place: Place, name: str, error: Exception, view: str = "", places: Sequence[Place] = ()) -> WorkerDiedError:
    """The death of the rank at ``place``, from Ray's ``error``.

    ``view`` is another rank's report of it; ``places`` are the places of all ranks.
    """
    actor_id = getattr(error, "actor_id", None)
    unsure = isinstance(error, ActorUnavailableError)
    if is_lost(place.facts.node_id, _VERDICT_S if unsure else 0.0):
        there = [p for p in places if p.facts.node_id == place.facts.node_id] or [place]
        text = f"{_node(place)} is lost, and {_ranks(there)} with it, in {name}."
        if not unsure:
            text += f"\nRay says: {point(error)}"
        if view:
            text += f"\nAnother rank says: {view}"
        return WorkerDiedError(text, there[0].rank, actor_id, [p.rank for p in there])
    if unsure:
        text = f"{place} cannot be reached in {name}, though Ray does not say that its node is lost."
    else:
        text = f"{place} has died in {name}."
    text += f"\nRay says: {point(error)}"
    if view:
        text += f"\nAnother rank says: {view}"
    text += shown(last_lines(place.facts))
    return WorkerDiedError(text, place.rank, actor_id)


def shown(lines: str) -> str:
    """The last lines of a process, as the end of a message."""
    return "\nThe last lines of its stderr:\n" + textwrap.indent(lines, "  ") if lines else ""


def point(error: BaseException) -> str:
    """The useful part of Ray's text about a death."""
    if isinstance(error, OutOfMemoryError):
        return f"it has killed the process, because the node was short of memory: {memory(error)}"
    text = str(error)
    for start in _POINTS:
        if start in text:
            text = text.partition(start)[2]
            break
    return text.partition(_END)[0].strip()


def memory(error: OutOfMemoryError) -> str:
    """How much memory was in use on a node when Ray killed a process there because of it, as a clause."""
    used, allowed = _USED.search(str(error)), _ALLOWED.search(str(error))
    if used is None or allowed is None:
        return str(error).partition("\n")[0]
    return f"{used[1]} of {used[2]} GB were used, and Ray allows {allowed[1]} (RAY_memory_usage_threshold)"


def is_lost(node_id: str, patience_s: float = 0.0) -> bool:
    """Whether Ray counts a node as dead, now or within ``patience_s`` seconds."""
    end = time.monotonic() + patience_s
    while any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes()):
        if time.monotonic() >= end:
            return False
        time.sleep(_LOOKS_S)
    return True


def _node(place: Place) -> str:
    f = place.facts
    return f"node {f.node_id[:8]} ({f.hostname}, {f.address})"


def _ranks(places: Sequence[Place]) -> str:
    return "rank" + "s" * (len(places) > 1) + " " + ", ".join(f"{p.rank} (pid {p.facts.pid})" for p in places)


def last_lines(facts: Facts) -> str:
    """The last lines of a worker's stderr, if its node still answers."""
    if not os.path.isabs(facts.stderr) or is_lost(facts.node_id):
        return ""
    there = NodeAffinitySchedulingStrategy(facts.node_id, soft=False)
    lines = ray.remote(_tail).options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote(facts.stderr)
    try:
        return str(ray.get(lines, timeout=_READ_S))
    except Exception:  # the lines are only a help
        lines.future()
        return ""


def _tail(path: str) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - _MOST_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = [line[:_MOST_COLUMNS] for line in text.splitlines() if line.strip() and not line.startswith(_NOT_SHOWN)]
    crash = [index for index, line in enumerate(lines) if line.startswith("Fatal Python error")]
    return "\n".join(lines[crash[-1] :][:_LINES] if crash else lines[-_LINES:])
