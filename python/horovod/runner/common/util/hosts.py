"""Hosts, slots, and which rank gets which slot."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from typing import Iterable, Optional

_ENTRY = re.compile(r"^(\w[\w.-]*|\[[0-9A-Fa-f:.]+\]):([0-9]+)$")


@dataclasses.dataclass(eq=False)
class HostInfo:
    """A host, and how many ranks it may run.

    Args:
        hostname: its name or address.
        slots: the number of ranks.

    Example:
        >>> from horovod.runner.common.util.hosts import HostInfo
        >>> HostInfo.from_string("worker-0:2")
        HostInfo(hostname='worker-0', slots=2)
    """

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> "HostInfo":
        """Parse ``"host:slots"``.

        Args:
            host_string: the text. An IPv6 address needs brackets: ``"[::1]:2"``.

        Returns:
            The host.

        Raises:
            ValueError: the text is something else.
        """
        match = _ENTRY.match(host_string.strip())
        if match is None:
            raise ValueError(f"Invalid host input {host_string!r}: it must look like host:slots, such as worker-0:2")
        return HostInfo(match[1].strip("[]"), int(match[2]))


@dataclasses.dataclass
class SlotInfo:
    """One rank's place.

    Args:
        hostname: its host.
        rank, size: its number among all ranks, and how many these are.
        local_rank, local_size: its number among the ranks of its host, and how many these are.
        cross_rank, cross_size: its host's number among the hosts that have this local rank, and how many these are.

    Example:
        >>> from horovod.runner.common.util.hosts import SlotInfo
        >>> SlotInfo("worker-0", 0, 0, 0, 2, 1, 2).to_response_string()
        '0,2,0,1,0,2'
    """

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: Optional[int] = None
    local_size: Optional[int] = None
    cross_size: Optional[int] = None

    def to_response_string(self) -> str:
        """The numbers as text.

        Returns:
            ``rank,size,local_rank,local_size,cross_rank,cross_size``.
        """
        places = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, places))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Parse a list of hosts, as ``horovodrun -H`` takes it.

    Args:
        hosts_string: such as ``"a:2,b:4"``.

    Returns:
        The hosts.

    Raises:
        ValueError: an entry is not of the form ``host:slots``.

    Example:
        >>> from horovod.runner.common.util.hosts import parse_hosts
        >>> [host.slots for host in parse_hosts("a:2,b:4")]
        [2, 4]
    """
    return [HostInfo.from_string(entry) for entry in hosts_string.split(",")]


def parse_host_files(filename: str) -> str:
    """Turn a hostfile into a list of hosts, as ``horovodrun -H`` takes it. Blank lines and comments do not count.

    Args:
        filename: a file with a line ``host slots=N`` for each host.

    Returns:
        Text such as ``"a:2,b:4"``.

    Raises:
        OSError: the file cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from horovod.runner.common.util.hosts import parse_host_files
        >>> _ = Path("hosts").write_text("a slots=2")
        >>> parse_host_files("hosts")
        'a:2'
    """
    hosts = []
    with open(filename) as file:
        for line in file:
            line = line.partition("#")[0].strip()
            if line:
                hostname, _, slots = line.partition(" ")
                hosts.append(f"{hostname}:{slots.strip().partition('=')[2]}")
    return ",".join(hosts)


def get_host_assignments(
    hosts: Iterable[HostInfo], min_num_proc: int, max_num_proc: Optional[int] = None
) -> list[SlotInfo]:
    """Give ranks their places: the hosts in the given order, all slots of a host one after the other.

    Cross ranks count the hosts that have a slot with the same local rank.

    Args:
        hosts: the hosts.
        min_num_proc: how many ranks there must be at least.
        max_num_proc: how many ranks there may be at most. None: as many as there are slots.

    Returns:
        The places, by rank.

    Raises:
        ValueError: the hosts have fewer than ``min_num_proc`` slots.

    Example:
        >>> from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        >>> [(slot.hostname, slot.local_rank) for slot in get_host_assignments(parse_hosts("a:2,b:2"), 3, 3)]
        [('a', 0), ('a', 1), ('b', 0)]
    """
    slots: list[SlotInfo] = []
    cross: dict[int, int] = defaultdict(int)
    local: dict[str, int] = defaultdict(int)
    for host in hosts:
        for _ in range(host.slots):
            if max_num_proc is not None and len(slots) == max_num_proc:
                break
            index = local[host.hostname]
            slots.append(SlotInfo(host.hostname, len(slots), index, cross[index]))
            local[host.hostname] += 1
            cross[index] += 1
    if len(slots) < min_num_proc:
        raise ValueError(f"Requested more processes ({min_num_proc}) than there are available slots ({len(slots)})")
    for slot in slots:
        slot.size, slot.local_size, slot.cross_size = len(slots), local[slot.hostname], cross[slot.local_rank]
    return slots
