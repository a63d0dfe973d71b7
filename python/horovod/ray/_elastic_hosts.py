"""The hosts of an elastic job: which nodes of a Ray cluster have room, and how to start an actor on a host."""

from __future__ import annotations

import time
from typing import Any, Iterable, Mapping

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray import _require

# How long Ray's count of free resources may lag behind a worker's start or end.
_SETTLES_S = 5.0
# How long Ray may take to say that a node is lost, after the connections to its actors have broken.
_VERDICT_S = 60.0
_SHARE = 0.001  # of a node's own resource, by which an actor is pinned to the node


def slots(resources: Mapping[str, float], per_worker: Mapping[str, float]) -> int:
    """How many workers fit into these resources."""
    return min((int(resources.get(name, 0) // amount) for name, amount in per_worker.items() if amount), default=0)


class Nodes:
    """The nodes of the cluster that this process belongs to, as the hosts of a job.

    Args:
        per_worker: the resources of one worker.
    """

    def __init__(self, per_worker: Mapping[str, float]) -> None:
        self._per_worker = per_worker
        self._ids: dict[str, str] = {}  # by host, of all nodes that have ever existed
        self._offered: dict[str, int] = {}
        self._changed: dict[str, float] = {}  # when a worker of the host last started or ended
        self._suspected: dict[str, float] = {}  # since when

    def touch(self, host: str) -> None:
        """Note that a worker of a host starts or has ended: Ray's count of free resources may be out of date."""
        self._changed[host] = time.monotonic()

    def suspect(self, host: str) -> None:
        """Note that a host cannot be reached. It has no room for more workers until Ray says what happened to it."""
        self._suspected[host] = time.monotonic()

    def offered(self, used: Mapping[str, Iterable[int]]) -> dict[str, int]:
        """How many workers each host has room for, including the slots in ``used``."""
        free = _available()
        offered: dict[str, int] = {}
        for node in ray.nodes():
            if not node["Alive"]:
                continue
            host = name(node)
            self._ids[host] = node["NodeID"]
            occupied = list(used.get(host, ()))
            if time.monotonic() - self._suspected.get(host, -_VERDICT_S) < _VERDICT_S:
                room = 0
            elif time.monotonic() - self._changed.get(host, -_SETTLES_S) < _SETTLES_S:
                room = self._offered.get(host, 0)
            else:
                room = len(occupied) + slots(free.get(node["NodeID"], {}), self._per_worker)
            # Other jobs may have taken room meanwhile: a worker that trains keeps its place anyway.
            room = max(min(room, slots(node["Resources"], self._per_worker)), *(slot + 1 for slot in occupied), 0)
            if room > 0:
                offered[host] = room
        self._offered = offered
        return offered

    def options(self, host: str) -> dict[str, Any]:
        """The options of an actor that runs on a host. Raises LookupError if there is no such host.

        The name is from :func:`name`, or a node's id, address or name in the network.
        """
        alive = [node for node in ray.nodes() if node["Alive"]]
        node_id = self._ids.get(host)
        found = [
            node["NodeID"]
            for node in alive
            if node_id == node["NodeID"]
            or host in (node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"])
        ]
        if len(found) == 1:
            return {"scheduling_strategy": NodeAffinitySchedulingStrategy(found[0], soft=False)}
        own = f"node:{host}"
        if any(own in node["Resources"] for node in alive):
            return {"resources": {own: _SHARE}}
        raise LookupError(f"no node of the cluster is called {host!r}")


def name(node: Mapping[str, Any]) -> str:
    """A node's name as a host: its address, and the beginning of its id, which no later node has."""
    return f"{node['NodeManagerAddress']}/{node['NodeID'][:8]}"


def gpus(host_options: Mapping[str, Any]) -> int:
    """How many GPUs the node has to which the actor's options lead; 0 if the options name no node."""
    strategy = host_options.get("scheduling_strategy")
    if strategy is None:
        return 0
    return next((int(n["Resources"].get("GPU", 0)) for n in ray.nodes() if n["NodeID"] == strategy.node_id), 0)


def _available() -> Mapping[str, Mapping[str, float]]:
    """The free resources, by the nodes' ids. Ray's public functions give only totals of these."""
    try:
        from ray._private.state import available_resources_per_node
    except ImportError as e:
        raise _require.inside(e) from e
    return dict(available_resources_per_node())
