"""The place of each rank on its host."""

from __future__ import annotations

from typing import Any

from horovod.ray import _rendezvous, _secret
from horovod.ray._settings import MiniSettings


class Coordinator:
    """Collects the ranks of a job with their nodes, and tells each its place.

    Local ranks are numbered in the order of the ranks, hosts in the order of their first registration.

    Args:
        settings: the job's settings.

    Example:
        >>> from horovod.ray.runner import Coordinator, MiniSettings
        >>> coordinator = Coordinator(MiniSettings())
        >>> for rank, node in enumerate("aab"):
        ...     coordinator.register(f"host-{node}", node, rank)
        >>> coordinator.finalize_registration()[2]["HOROVOD_CROSS_RANK"]
        1
    """

    def __init__(self, settings: MiniSettings) -> None:
        self.settings = settings
        self._ranks: dict[Any, list[int]] = {}  # by node
        self._hostnames: dict[Any, str] = {}

    def register(self, hostname: str, node_id: Any, world_rank: int) -> None:
        """Note where a rank runs.

        Args:
            hostname: the name of its node.
            node_id: Ray's identifier of the node.
            world_rank: the rank.
        """
        self._hostnames[node_id] = hostname
        self._ranks.setdefault(node_id, []).append(world_rank)

    @property
    def world_size(self) -> int:
        """How many ranks are registered."""
        return sum(map(len, self._ranks.values()))

    @property
    def hostnames(self) -> set[str]:
        """The names of all hosts."""
        return set(self._hostnames.values())

    @property
    def node_id_string(self) -> str:
        """The nodes, each with its number of ranks: ``id:n,id:n``."""
        return ",".join(f"{node}:{len(ranks)}" for node, ranks in self._ranks.items())

    def finalize_registration(self) -> dict[int, dict[str, Any]]:
        """Number local ranks and hosts.

        Returns:
            The variables that tell each rank its place, by rank.
        """
        variables: dict[int, dict[str, Any]] = {}
        cross_sizes: dict[int, int] = {}
        size = self.world_size
        for node, ranks in self._ranks.items():
            for local_rank, rank in enumerate(sorted(ranks)):
                cross_rank = cross_sizes.get(local_rank, 0)
                cross_sizes[local_rank] = cross_rank + 1
                variables[rank] = {
                    "HOROVOD_HOSTNAME": node,
                    "HOROVOD_RANK": rank,
                    "HOROVOD_SIZE": size,
                    "HOROVOD_LOCAL_RANK": local_rank,
                    "HOROVOD_LOCAL_SIZE": len(ranks),
                    "HOROVOD_CROSS_RANK": cross_rank,
                }
        for place in variables.values():
            place["HOROVOD_CROSS_SIZE"] = cross_sizes[place["HOROVOD_LOCAL_RANK"]]
        return variables

    def establish_rendezvous(self) -> dict[str, str]:
        """Serve the ranks' rendezvous in this process.

        Afterwards this process has the secret in its environment; the ranks need it, too.

        Returns:
            The variables by which ranks find it.
        """
        return _rendezvous.establish(self.world_size, self.settings.nics, _secret.own())
