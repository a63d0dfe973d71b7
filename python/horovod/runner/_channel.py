"""Connections over TCP whose two ends prove to each other that they know a secret."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Iterable

_CONNECT_S = 30.0  # for a connection to one of the addresses


def listen(only_here: bool) -> socket.socket:
    """Listen on a free port of every interface, or of loopback alone."""
    return socket.create_server(("127.0.0.1" if only_here else "", 0), backlog=1024)


def welcome(connected: socket.socket, key: bytes) -> Connection:
    """Take an accepted connection. A stranger's raises OSError, EOFError, AuthenticationError or ValueError."""
    _prepare(connected)
    connection = Connection(connected.detach())
    try:
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(addresses: Iterable[str], port: int, key: bytes, whom: str) -> Connection:
    """Connect to the first of the addresses that answers.

    Raises ConnectionError, which says that ``whom`` cannot be reached, or AuthenticationError. If nobody listens at any
    of the addresses, it is a ConnectionRefusedError.
    """
    connection = Connection(_connected(addresses, port, whom).detach())
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    return connection


def _connected(addresses: Iterable[str], port: int, whom: str) -> socket.socket:
    failures = []
    refused = True
    for address in addresses:
        try:
            connected = socket.create_connection((address, port), _CONNECT_S)
        except OSError as e:
            failures.append(f"{address}:{port}: {e}")
            refused = refused and isinstance(e, ConnectionRefusedError)
            continue
        connected.settimeout(None)
        _prepare(connected)
        return connected
    kind = ConnectionRefusedError if refused and failures else ConnectionError
    raise kind(f"{whom} cannot be reached at {'; '.join(failures)}")


def _prepare(connected: socket.socket) -> None:
    """Notice a peer that has vanished, and send each message at once.

    The proof of the key ends with a message to which no answer comes. Without TCP_NODELAY, the message behind it would
    wait for the delayed acknowledgement, 40 ms.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
