"""Hosts, slots, and which rank gets which slot."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from typing import Iterable, Optional

_ENTRY = re.compile(r"^(\w[\w.-]*|\[[0-9A-Fa-f:.]+\]):([0-9]+)$")


@dataclasses.dataclass(eq=False)
class HostInfo:
    """A host, and how many ranks it may run."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> "HostInfo":
        """Parse ``"host:slots"``; ValueError if it is something else."""
        match = _ENTRY.match(host_string.strip())
        if match is None:
            raise ValueError(f"Invalid host input {host_string!r}: it must look like host:slots, such as worker-0:2")
        return HostInfo(match[1].strip("[]"), int(match[2]))


@dataclasses.dataclass
class SlotInfo:
    """One rank's place."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: Optional[int] = None
    local_size: Optional[int] = None
    cross_size: Optional[int] = None

    def to_response_string(self) -> str:
        """``rank,size,local_rank,local_size,cross_rank,cross_size``."""
        places = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, places))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Parse ``"a:2,b:4"``."""
    return [HostInfo.from_string(entry) for entry in hosts_string.split(",")]


def parse_host_files(filename: str) -> str:
    """Turn a hostfile's lines, ``host slots=N``, into ``"a:2,b:4"``. Blank lines and comments are skipped."""
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

    Cross ranks count the hosts that have a slot with the same local rank. All slots are used, or ``max_num_proc`` of
    them. ValueError if there are fewer than ``min_num_proc``.
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
