"""Where the processes of a job that computes data, and of a job that trains with the data, find one another.

Each request is a connection: both ends prove that they know a key, then send one message of JSON each.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import struct
import threading
import time
from multiprocessing import AuthenticationError
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence

from horovod.runner import _channel
from horovod.runner.common.util.timeout import TimeoutException

__all__ = ["ComputeClient", "ComputeService"]

_LONGEST = 1 << 16  # bytes of a message
_SIOCGIFADDR = 0x8915
_GONE = (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, EOFError)  # errors of a service that has ended
# The service's errors that its client raises again. Any other one is a ValueError there.
_ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (IndexError, TimeoutException, ConnectionAbortedError)
}
_ANSWERED: tuple[type[Exception], ...] = (ValueError, TypeError, KeyError, *_ERRORS.values())


class ComputeService:
    """Knows the dispatchers of a tf.data service, and their workers.

    Args:
        dispatchers: how many dispatchers there will be.
        workers_per_dispatcher: how many workers each will have.
        key: the key that clients must know.
        nics: the network interfaces at which clients reach this host; None: all.

    Raises:
        ValueError: a number below 1, or a network interface that this host does not have.

    Example:
        >>> from horovod.runner.common.service.compute_service import ComputeClient, ComputeService
        >>> service = ComputeService(dispatchers=1, workers_per_dispatcher=1, key=b"secret")
        >>> client = ComputeClient(service.addresses(), key=b"secret")
        >>> client.register_dispatcher(0, "grpc://localhost:5000")
        >>> client.wait_for_dispatcher_registration(0, timeout=5)
        'grpc://localhost:5000'
        >>> service.shutdown()
    """

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, key: bytes, nics: Optional[Sequence[str]] = None
    ) -> None:
        for name, value in (("dispatchers", dispatchers), ("workers_per_dispatcher", workers_per_dispatcher)):
            if value < 1:
                raise ValueError(f"{name}={value}: at least 1 is needed")
        self._dispatchers: list[Optional[str]] = [None] * dispatchers
        self._workers: list[set[int]] = [set() for _ in range(dispatchers)]
        self._wanted = workers_per_dispatcher
        self._key = key
        self._down = False
        self._changed = threading.Condition()
        found = addresses_of(nics)
        self._listener = _channel.listen(False)
        self._addresses = {"": [(address, self._listener.getsockname()[1]) for address in found]}
        threading.Thread(target=self._accept, name="horovod-compute-service", daemon=True).start()

    def addresses(self) -> dict[str, list[tuple[str, int]]]:
        """Where clients reach the service."""
        return self._addresses

    def shutdown(self) -> None:
        """Tell all waiting clients that the service is over, and stop listening."""
        with self._changed:
            self._down = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def wait_for_shutdown(self, timeout: Optional[float] = None) -> bool:
        """Wait until a client shuts the service down. Returns whether that has happened."""
        with self._changed:
            return self._changed.wait_for(lambda: self._down, timeout)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, AuthenticationError):  # a stranger, or a client that is gone
            with _channel.welcome(connected, self._key) as connection:
                try:
                    answer = {"answer": self._answer(json.loads(connection.recv_bytes(_LONGEST)))}
                except _ANSWERED as e:
                    answer = {"error": str(e), "kind": type(e).__name__}
                connection.send_bytes(json.dumps(answer).encode())

    def _answer(self, request: Mapping[str, Any]) -> Any:
        calls: dict[str, Callable[..., Any]] = {
            "register_dispatcher": self._register_dispatcher,
            "register_worker": self._register_worker,
            "dispatcher": self._dispatcher,
            "workers": self._all_workers,
            "wait_for_shutdown": self.wait_for_shutdown,
            "shutdown": self.shutdown,
        }
        return calls[request["call"]](*request["args"])

    def _number(self, dispatcher: int) -> int:
        if not 0 <= dispatcher < len(self._dispatchers):
            raise IndexError(
                f"there is no dispatcher {dispatcher}: they have the numbers below {len(self._dispatchers)}"
            )
        return dispatcher

    def _register_dispatcher(self, dispatcher: int, address: str) -> None:
        with self._changed:
            there = self._dispatchers[self._number(dispatcher)]
            if there not in (None, address):
                raise ValueError(f"dispatcher {dispatcher} is registered already, at {there}")
            self._dispatchers[dispatcher] = address
            self._changed.notify_all()

    def _register_worker(self, dispatcher: int, worker: int) -> None:
        with self._changed:
            self._workers[self._number(dispatcher)].add(worker)
            self._changed.notify_all()

    def _dispatcher(self, dispatcher: int, timeout: float) -> str:
        with self._changed:
            self._number(dispatcher)
            self._changed.wait_for(lambda: self._down or self._dispatchers[dispatcher] is not None, timeout)
            address = self._dispatchers[dispatcher]
            return address if address is not None else self._late(f"dispatcher {dispatcher} has", timeout)

    def _all_workers(self, dispatcher: int, timeout: float) -> None:
        with self._changed:
            workers = self._workers[self._number(dispatcher)]
            self._changed.wait_for(lambda: self._down or len(workers) >= self._wanted, timeout)
            if len(workers) < self._wanted:
                self._late(f"{self._wanted - len(workers)} workers of dispatcher {dispatcher} have", timeout)

    def _late(self, who: str, timeout: float) -> NoReturn:
        if self._down:
            raise ConnectionAbortedError(f"the compute service was shut down before {who} started")
        raise TimeoutException(f"{who} not started within {timeout} seconds")


class ComputeClient:
    """Asks a :class:`ComputeService`, in another process or this one.

    Args:
        compute_addresses: the result of the service's ``addresses()``.
        key: the service's key.
        verbose: above 1 prints each request.
    """

    def __init__(self, compute_addresses: Mapping[str, Any], key: bytes, verbose: int = 1) -> None:
        self._addresses = [(str(host), int(port)) for found in compute_addresses.values() for host, port in found]
        self._key = key
        self._verbose = verbose

    def register_dispatcher(self, dispatcher_id: int, dispatcher_address: str) -> None:
        """Register a dispatcher's address.

        Raises IndexError if there is no such number, and ValueError if another dispatcher has it.
        """
        self._ask("register_dispatcher", dispatcher_id, dispatcher_address)

    def register_worker_for_dispatcher(self, dispatcher_id: int, worker_id: int) -> None:
        """Register that a worker of a dispatcher is ready. Raises IndexError if there is no such dispatcher."""
        self._ask("register_worker", dispatcher_id, worker_id)

    def wait_for_dispatcher_registration(self, dispatcher_id: int, timeout: float) -> str:
        """The address of a dispatcher.

        Raises TimeoutException if it is not registered after so many seconds, IndexError if there is no such
        dispatcher, and ConnectionAbortedError if the service is shut down before.
        """
        return str(self._ask("dispatcher", dispatcher_id, timeout))

    def wait_for_dispatcher_worker_registration(self, dispatcher_id: int, timeout: float) -> None:
        """Wait for all workers of a dispatcher. Raises as :meth:`wait_for_dispatcher_registration` does."""
        self._ask("workers", dispatcher_id, timeout)

    def shutdown(self) -> None:
        """End the service, and with it the processes that compute. Does nothing if the service is gone already.

        Raises ConnectionError if the service cannot be reached for another reason, or has another key.
        """
        with contextlib.suppress(*_GONE):
            self._ask("shutdown")

    def wait_for_shutdown(self) -> None:
        """Wait until the service is shut down, or is gone."""
        while True:
            try:
                if self._ask("wait_for_shutdown", 60):
                    return
            except (OSError, EOFError):  # its process has ended
                return

    def _ask(self, call: str, *args: Any) -> Any:
        if self._verbose > 1:
            print(f"compute service: {call}{args}", flush=True)
        with self._connect() as connection:
            connection.send_bytes(json.dumps({"call": call, "args": args}).encode())
            answer = json.loads(connection.recv_bytes(_LONGEST))
        if "error" in answer:
            raise _ERRORS.get(answer["kind"], ValueError)(answer["error"])
        return answer["answer"]

    def _connect(self) -> Any:
        failures = []
        gone = bool(self._addresses)
        for address, port in self._addresses:
            try:
                return _channel.connect([address], port, self._key, "the compute service")
            except (OSError, EOFError) as e:
                failures.append(str(e) or f"{address}:{port} has closed the connection")
                gone = gone and isinstance(e, _GONE)
            except AuthenticationError:
                failures.append(f"{address}:{port} has another key")
                gone = False
        kind = ConnectionRefusedError if gone else ConnectionError
        raise kind("; ".join(failures) or "no address of the compute service is known")


def addresses_of(nics: Optional[Sequence[str]] = None) -> list[str]:
    """The IPv4 addresses of this host, or of some network interfaces; the most reachable ones first."""
    if nics:
        return [_address_of(nic) for nic in nics]
    found: dict[str, None] = {}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect(("192.0.2.1", 9))  # an address for documentation; connecting sends nothing
        found[way.getsockname()[0]] = None
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
            found[str(address[0])] = None
    found.pop("127.0.0.1", None)
    return [*found, "127.0.0.1"]


def _address_of(nic: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            told = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", nic.encode()[:15]))
        except OSError as e:
            raise ValueError(f"the network interface {nic!r} has no IPv4 address here: {e}") from None
    return socket.inet_ntoa(told[20:24])


def reachable(url: str, timeout: float = 5.0) -> bool:
    """Whether something listens at ``grpc://host:port``."""
    host, _, port = url.rpartition("/")[2].rpartition(":")
    deadline = time.monotonic() + timeout
    try:
        socket.create_connection((host, int(port)), max(0.1, deadline - time.monotonic())).close()
    except OSError:
        return False
    return True


def way_to(host: str) -> str:
    """This host's address on the way to another host, by which the other host reaches this one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host, 9))
        return str(way.getsockname()[0])
    return addresses_of()[0]
