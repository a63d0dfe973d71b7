"""A cluster's resources, and a job's demands, in words."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

import ray
from ray.util.placement_group import PlacementGroup

_SHOWN = ("CPU", "GPU")
_NOT_SHOWN = ("node:", "memory", "object_store", "bundle")
_MOST_NODES = 16
TIMED_OUT = (
    "Placement group creation timed out. Make sure your cluster either has enough resources or use an autoscaling "
    "cluster."
)


def words(resources: Mapping[str, float], like: Optional[Mapping[str, float]] = None) -> str:
    """Such as ``{CPU: 4, GPU: 1}``. ``like`` decides which resources to name."""
    shown = [name for name in _SHOWN if name in (like or resources)]
    # Entries of placement groups, such as CPU_group_0_e77f, repeat the resources of their nodes.
    shown += [n for n in resources if n not in _SHOWN and not n.startswith(_NOT_SHOWN) and "_group_" not in n]
    return "{" + ", ".join(f"{name}: {resources.get(name, 0):g}" for name in shown) + "}"


def asked(bundles: Sequence[Mapping[str, float]], strategy: str) -> str:
    """Such as ``4 × {CPU: 1} (PACK)``."""
    spread = ", each on a host of its own" if strategy == "STRICT_SPREAD" else ""
    return f"{len(bundles)} × {words(bundles[0])}{spread} ({strategy})"


def there() -> str:
    """The resources of each node of the cluster, and how much is free in total."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    has = [f"{node['NodeManagerAddress']} ({node['NodeID'][:8]}) {words(node['Resources'])}" for node in nodes]
    if len(has) > _MOST_NODES:
        has[_MOST_NODES:] = [f"and {len(has) - _MOST_NODES} more"]
    free = words(ray.available_resources(), ray.cluster_resources())
    return f"The cluster has {len(nodes)} node{'s' * (len(nodes) != 1)}: {'; '.join(has)}. Free in all: {free}."


def check_room(group: PlacementGroup, per_worker: Mapping[str, float], workers: int) -> None:
    """Raise TimeoutError if the placement group could never have room for this many workers."""
    room = sum(_fits(bundle, per_worker) for bundle in group.bundle_specs)
    if room < workers:
        bundles = ", ".join(words(bundle) for bundle in group.bundle_specs)
        raise TimeoutError(
            f"{TIMED_OUT} The current placement group has room for {room} of {workers} workers that need "
            f"{words(per_worker)} each: its bundles are {bundles}. Make the group larger, or give RayExecutor "
            "use_current_placement_group=False."
        )


def _fits(bundle: Mapping[str, float], per_worker: Mapping[str, float]) -> int:
    """How many workers fit into the bundle."""
    return min((int(bundle.get(name, 0) // amount) for name, amount in per_worker.items() if amount), default=1 << 30)
