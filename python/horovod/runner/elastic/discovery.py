"""Discoveries of the hosts of an elastic job. Horovod has these names in this module."""

from __future__ import annotations

import abc
from typing import Mapping

__all__ = ["FixedHosts", "HostDiscovery"]


class HostDiscovery(abc.ABC):
    """Finds the hosts of a job, repeatedly while it runs. Derive your own discovery from it.

    Example:
        >>> from horovod.runner.elastic.discovery import HostDiscovery
        >>> class Listed(HostDiscovery):
        ...     def find_available_hosts_and_slots(self):
        ...         return {"10.0.0.5": 2}
        >>> Listed().find_available_hosts_and_slots()
        {'10.0.0.5': 2}
    """

    @abc.abstractmethod
    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Find the hosts that exist now.

        Returns:
            How many ranks each host may run, by its name.
        """


class FixedHosts(HostDiscovery):
    """Hosts that a program sets.

    Args:
        available_hosts: how many ranks each host may run, by its name.

    Example:
        >>> from horovod.runner.elastic.discovery import FixedHosts
        >>> FixedHosts({"a": 2}).find_available_hosts_and_slots()
        {'a': 2}
    """

    def __init__(self, available_hosts: Mapping[str, int]) -> None:
        self._hosts = dict(available_hosts)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The hosts that were set last.

        Returns:
            How many ranks each host may run, by its name.
        """
        return dict(self._hosts)

    def set(self, available_hosts: Mapping[str, int]) -> None:
        """Set other hosts.

        Args:
            available_hosts: how many ranks each host may run, by its name.
        """
        self._hosts = dict(available_hosts)
