"""How :func:`horovod.runner.run` and processes started by ``mpirun`` exchange the function and its results.

    caller: Handover ◀── TCP, both prove that they know the secret ──▶ Caller: run_task, in each process
                          rank ◀──   task ──▶   result ◀──

The launcher's own processes need none of this: they get the function on stdin, and a third stream has the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import threading
import time
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Iterable

from horovod.runner import _channel
from horovod.runner.common.util.env import get_env_rank_and_size

VARIABLE = "GOROVOD_RUN_CALLER"  # where the caller listens, and the secret
_LAST_RESULTS_S = 5.0  # how long close waits for results that are being received


class Handover:
    """The caller's end: sends ``task`` to every process that asks, and writes each one's result to ``results/RANK``."""

    def __init__(self, task: bytes, results: Path, hosts: Iterable[str]) -> None:
        """Listen where ``hosts`` can reach this host; on loopback alone if there are no other hosts."""
        self._task = task
        self._results = results
        self._key = secrets.token_bytes(32)
        addresses = _addresses_seen_from(hosts)
        only_here = all(address.startswith("127.") for address in addresses)
        self._listener = _channel.listen(only_here)
        self._where = {"addresses": addresses, "port": self._listener.getsockname()[1], "key": self._key.hex()}
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def environ(self) -> dict[str, str]:
        """The variables that tell the processes where to ask."""
        return {VARIABLE: json.dumps(self._where)}

    def close(self) -> None:
        """Stop listening, and return when the results that were sent are written."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        end = time.monotonic() + _LAST_RESULTS_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connected,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connected: socket.socket) -> None:
        # A stranger without the secret, or a process that ends before it has a result, leaves no file.
        with contextlib.suppress(OSError, EOFError, AuthenticationError, ValueError):
            with _channel.welcome(connected, self._key) as connection:
                rank = int(connection.recv_bytes(16))
                connection.send_bytes(self._task)
                result = connection.recv_bytes()
                (self._results / str(rank)).write_bytes(result)
                connection.send_bytes(b"written")


class Caller:
    """A process's end. The process is killed when the caller is gone, because nobody waits for its result."""

    def __init__(self, said: str) -> None:
        """``said`` is the value of the variable. Raises ConnectionError if the caller cannot be reached."""
        where = json.loads(said)
        key = bytes.fromhex(where["key"])
        whom = "the program that called horovod.run"
        self._connection = _channel.connect(where["addresses"], where["port"], key, whom)
        rank, _ = get_env_rank_and_size()
        self._connection.send_bytes(str(rank).encode())
        self.task = self._connection.recv_bytes()
        self._written = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            self._connection.recv_bytes(16)
        except (OSError, EOFError):
            os.kill(os.getpid(), signal.SIGKILL)
        self._written.set()

    def send(self, result: bytes) -> None:
        """Send the result; returns when the caller has written it."""
        self._connection.send_bytes(result)
        self._written.wait()


def _addresses_seen_from(hosts: Iterable[str]) -> list[str]:
    """This host's IPv4 addresses on the ways to ``hosts``, and those of its own name if only ssh knows one of them."""
    found: dict[str, None] = {}
    for host in hosts:
        ours = _sources(host) or _sources(socket.gethostname())
        found.update(dict.fromkeys(ours))
    return list(found) or ["127.0.0.1"]


def _sources(host: str) -> list[str]:
    """The addresses from which this host would send to ``host``; none if the name is unknown here."""
    sources = []
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(host, 9, socket.AF_INET, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:  # connecting sends nothing
                way.connect(address)
                sources.append(way.getsockname()[0])
    return sources
