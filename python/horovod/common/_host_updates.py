"""How a worker hears that the hosts of its job have changed."""

from __future__ import annotations

import enum
import threading
import traceback
from typing import Any, ContextManager, Optional, Protocol

from horovod.common import _lib


class HostUpdateResult(enum.IntFlag):
    """How the job's hosts have changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class Listener(Protocol):
    """An object that wants to know of changes, such as a :class:`horovod.common.elastic.State`."""

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Called on the notifier's thread for each change, as soon as this process knows. It must not block."""


class WorkerNotificationManager:
    """Passes the news of an elastic job's driver on to the listeners of this process. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passing_on = threading.RLock()  # held while a thread takes news and calls all listeners
        self._listeners: list[Listener] = []
        self._thread: Optional[threading.Thread] = None

    def init(
        self,
        rendezvous_addr: Optional[str] = None,
        rendezvous_port: Optional[int] = None,
        nic: Optional[str] = None,
        hostname: Optional[str] = None,
        local_rank: Optional[int] = None,
    ) -> None:
        """Start the thread that hears of changes, in an elastic job, after ``hvd.init()``. Other calls do nothing.

        The arguments say where Horovod's driver is; ``hvd.init()`` has connected to gorovod's.
        """
        with self._lock:
            if self._thread is None and _lib.load().gorovod_elastic() != _lib.NOT_ELASTIC:
                self._thread = threading.Thread(target=self._listen, name="horovod-hosts-updated", daemon=True)
                self._thread.start()

    def _listen(self) -> None:
        while _lib.await_elastic_updates():
            with self._passing_on:
                stamp, result = _lib.elastic_updates()
                if result:  # otherwise the news is about a world that has ended
                    self.handle_hosts_updated(stamp, result)

    def paused(self) -> ContextManager[Any]:
        """Pass nothing on inside ``with``, for a reset: at its end, the news of the world before it is dropped."""
        return self._passing_on

    def register_listener(self, listener: Listener) -> None:
        """Call ``listener`` for changes from now on."""
        with self._lock:
            if not any(known is listener for known in self._listeners):
                self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo :meth:`register_listener`, if it was called."""
        with self._lock:
            self._listeners = [known for known in self._listeners if known is not listener]

    def handle_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Call every listener for a change: ``timestamp`` in seconds, and a :class:`HostUpdateResult`."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            try:
                listener.on_hosts_updated(timestamp, update_res)
            except Exception:
                traceback.print_exc()  # and go on, so that other listeners, and later news, do not suffer
