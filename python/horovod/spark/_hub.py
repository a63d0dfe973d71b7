"""How the tasks of a job and the process that watches them communicate: by messages over TCP.

Both ends prove that they know a secret. A message is a kind, fields in JSON, and a payload of bytes. The task's first
message is ``here``.

    watching process: Hub ◀── here, rank, started, output, ended ── Link: each task
                             ── start, signal, end ──▶
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any, Callable, Mapping, Sequence

from horovod.runner import _channel

LOST = "lost"  # reported when a connection has ended


class Member:
    """A task, at the hub's end of the connection.

    Attributes:
        facts: the fields of its ``here``.
        name: the name before its output.
    """

    def __init__(self, connection: Connection, facts: Mapping[str, Any]) -> None:
        self.facts = facts
        self.name = "?"
        self._wire = _Wire(connection)

    def send(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a message. If the task is gone, the message is lost."""
        with contextlib.suppress(OSError):
            self._wire.send(kind, fields, payload)


class Hub:
    """Accepts the connections of the tasks.

    Args:
        addresses: of this host, as the tasks see it.
        heard: is called with the member, the kind, the fields and the payload of each message, on a thread for each
            member.
    """

    def __init__(self, addresses: Sequence[str], heard: Callable[[Member, str, dict[str, Any], bytes], None]) -> None:
        self._key = secrets.token_bytes(32)
        self._heard = heard
        self._listener = _channel.listen(all(address.startswith("127.") for address in addresses))
        port = self._listener.getsockname()[1]
        self.where: dict[str, Any] = {"addresses": list(addresses), "port": port, "key": self._key.hex()}
        self._connections: list[Connection] = []
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and end all connections; then tasks end their processes."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            _hang_up(connection)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        try:
            connection = _channel.welcome(connected, self._key)
            wire = _Wire(connection)
            kind, facts, payload = wire.receive()
        except (OSError, EOFError, AuthenticationError, ValueError):
            return  # a stranger
        self._connections.append(connection)
        if self._closed:
            _hang_up(connection)
        member = Member(connection, facts)
        while True:
            self._heard(member, kind, facts, payload)
            try:
                kind, facts, payload = wire.receive()
            except (OSError, EOFError):
                break
        self._heard(member, LOST, {}, b"")


class Link:
    """A task's end of a connection.

    Args:
        where: of the hub.
        heard: is called with the kind and the fields of each message, on a thread of its own, and with ``LOST`` when
            the hub has gone.
        facts: for the hub.

    Raises:
        ConnectionError: the hub cannot be reached.
    """

    def __init__(
        self, where: Mapping[str, Any], heard: Callable[[str, dict[str, Any]], None], facts: Mapping[str, Any]
    ) -> None:
        key = bytes.fromhex(where["key"])
        whom = "the program that called horovod.spark"
        self._connection = _channel.connect(where["addresses"], where["port"], key, whom)
        self._wire = _Wire(self._connection)
        self._heard = heard
        self._wire.send("here", facts, b"")
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, kind: str, payload: bytes = b"", **fields: Any) -> None:
        """Send a message. If the hub is gone, the message is lost."""
        with contextlib.suppress(OSError):
            self._wire.send(kind, fields, payload)

    def close(self) -> None:
        """End the connection."""
        _hang_up(self._connection)

    def _read(self) -> None:
        while True:
            try:
                kind, fields, _ = self._wire.receive()
            except (OSError, EOFError):
                self._heard(LOST, {})
                return
            self._heard(kind, fields)


class _Wire:
    """Messages on a connection. Several threads may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, kind: str, fields: Mapping[str, Any], payload: bytes) -> None:
        head = json.dumps([kind, fields]).encode()
        with self._sending:
            self._connection.send_bytes(head + b"\n" + payload)

    def receive(self) -> tuple[str, dict[str, Any], bytes]:
        head, _, payload = self._connection.recv_bytes().partition(b"\n")
        kind, fields = json.loads(head)
        return kind, fields, payload


def _hang_up(connection: Connection) -> None:
    """End a connection that another thread may be reading."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)
