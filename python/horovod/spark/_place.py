"""The host of a task, and the rank that each task of a barrier stage becomes."""

from __future__ import annotations

import os
from typing import Sequence

from horovod.runner.common.util.host_hash import host_hash


def host() -> str:
    """The name of this task's host. Tasks that share memory have the same name. YARN's containers share none."""
    return host_hash(os.environ.get("CONTAINER_ID"))


def ranks(hosts: Sequence[str]) -> list[int]:
    """The partitions in order of rank: host by host, that of partition 0 first.

    >>> ranks(["b", "a", "b", "a"])
    [0, 2, 1, 3]
    """
    first: dict[str, int] = {}
    for partition, host in enumerate(hosts):
        first.setdefault(host, partition)
    return sorted(range(len(hosts)), key=lambda partition: (first[hosts[partition]], partition))


def variables(hosts: Sequence[str], partition: int) -> dict[str, str]:
    """The variables that tell the rank of a partition its place."""
    order = ranks(hosts)
    own = [p for p in order if hosts[p] == hosts[partition]]
    local_rank = own.index(partition)
    crossing = [host for host in dict.fromkeys(hosts[p] for p in order) if hosts.count(host) > local_rank]
    return {
        "HOROVOD_HOSTNAME": hosts[partition],
        "HOROVOD_RANK": str(order.index(partition)),
        "HOROVOD_SIZE": str(len(hosts)),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(len(own)),
        "HOROVOD_CROSS_RANK": str(crossing.index(hosts[partition])),
        "HOROVOD_CROSS_SIZE": str(len(crossing)),
    }
