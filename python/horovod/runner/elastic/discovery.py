"""Discoveries of the hosts of an elastic job. Horovod has these names in this module."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import subprocess
import tempfile
from typing import Mapping, Optional

from horovod.runner.common.util.hosts import HostInfo

__all__ = ["FixedHosts", "HostDiscovery", "HostDiscoveryScript"]

_LIMIT = 60.0  # seconds that a script may take, as under horovodrun
_MOST = 1 << 20  # bytes that a script may print


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


class HostDiscoveryScript(HostDiscovery):
    """Hosts that a script prints, as for ``horovodrun --host-discovery-script``.

    Args:
        script: a command for the shell. It prints a line ``host`` or ``host:slots`` for each host, or nothing if there
            are no hosts now. If a host has several lines, the last one counts; one with 0 slots is left out. An IPv6
            address needs brackets. The script may take 60 seconds.
        slots: how many ranks a host may run whose line has no number; None is 1.

    Example:
        >>> from horovod.runner.elastic.discovery import HostDiscoveryScript
        >>> HostDiscoveryScript("echo a:2; echo b", slots=4).find_available_hosts_and_slots()
        {'a': 2, 'b': 4}
    """

    def __init__(self, script: str, slots: Optional[int] = None) -> None:
        if not isinstance(script, str):
            raise TypeError(f"script={script!r}: a command for the shell is needed")
        if slots is not None and (not isinstance(slots, int) or isinstance(slots, bool) or slots < 1):
            raise ValueError(f"slots={slots!r}: a number of at least 1 is needed")
        self._script = script
        self._slots = 1 if slots is None else slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the script.

        Returns:
            How many ranks each host may run, by its name.

        Raises:
            RuntimeError: the script has exited with another code than 0, has not ended in time, has printed more than a
                mebibyte, or has printed a line that is no host.
        """
        found: dict[str, int] = {}
        for line in filter(None, map(str.strip, self._output().splitlines())):
            found.update([self._host(line)])
        return {host: slots for host, slots in found.items() if slots}

    def _host(self, line: str) -> tuple[str, int]:
        for entry in (line, f"{line}:{self._slots}"):
            with contextlib.suppress(ValueError):
                host = HostInfo.from_string(entry)
                return host.hostname, host.slots
        raise RuntimeError(f"{self._script} printed {line!r}: a line must look like host or host:slots")

    def _output(self) -> str:
        # Files, not pipes, because a process that the script leaves behind would hold a pipe open.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
            try:
                code = process.wait(_LIMIT)
            except BaseException as e:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(e, subprocess.TimeoutExpired):
                    raise RuntimeError(f"{self._script}: it has not ended within {_LIMIT:g} seconds") from None
                raise
            if code != 0:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
                said = errors.read(4096).decode(errors="replace").strip()
                raise RuntimeError(f"{self._script}: exit status {code}" + (f":\n{said}" if said else ""))
            out.seek(0)
            text = out.read(_MOST + 1)
        if len(text) > _MOST:
            raise RuntimeError(f"{self._script}: it has printed more than {_MOST >> 10} KiB")
        return text.decode(errors="replace")
