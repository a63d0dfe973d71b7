"""How a worker hears that the hosts of its job have changed."""

from __future__ import annotations

import enum
import threading
from typing import Optional, Protocol

from horovod.common import _lib


class HostUpdateResult(enum.IntFlag):
    """What has become of the job's hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class Listener(Protocol):
    """Whoever wants to know, such as a :class:`horovod.common.elastic.State`."""

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Hear of a change, on a thread of the notifier's."""


class WorkerNotificationManager:
    """Passes on what the driver of an elastic job says to the listeners of this process. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []

    def init(
        self,
        rendezvous_addr: Optional[str] = None,
        rendezvous_port: Optional[int] = None,
        nic: Optional[str] = None,
        hostname: Optional[str] = None,
        local_rank: Optional[int] = None,
    ) -> None:
        """Does nothing: ``hvd.init()`` has connected to the driver, if there is one.

        The arguments say where Horovod's driver is.
        """

    def poll(self) -> None:
        """Pass on what the driver has said since the last call. Changes of an epoch that is over are forgotten."""
        stamp, result = _lib.elastic_updates()
        if result:
            self.handle_hosts_updated(stamp, result)

    def register_listener(self, listener: Listener) -> None:
        """Have ``listener`` told of changes from now on."""
        with self._lock:
            if not any(known is listener for known in self._listeners):
                self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo :meth:`register_listener`, if it was called."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known is not listener]

    def handle_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Tell every listener of a change: ``timestamp`` in seconds, and a :class:`HostUpdateResult`."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)
