"""How the engine is started for torch.distributed, under horovodrun and under other launchers.

Under horovodrun the engine needs nothing, but ``env://`` does: its store is made with the engine's help. Under other
launchers, such as torchrun, a store exists: rank 0 serves a rendezvous for the engine, and puts the address and the
job's secret into the store.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import platform
import secrets
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Optional
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist

import horovod.torch as hvd
from horovod.common import _lib, _patches
from horovod.common._job import basics as _basics
from horovod.torch.distributed import _ends, _threads

_LEAVE_S = 5


def _started_by_horovodrun() -> bool:
    return bool(os.environ.get("HOROVOD_SIZE"))


def join(store: dist.Store, rank: int, size: int) -> None:
    """Start the engine, unless it is running. All ranks call this. A rank that ends then ends only its own groups.

    Raises RuntimeError if it runs with another rank or number of ranks, ValueError if it cannot be started.
    """
    if not hvd.is_initialized():
        if _started_by_horovodrun():
            hvd.init(process_sets="dynamic")
        else:
            start(store, rank, size)
    if (hvd.rank(), hvd.size()) != (rank, size):
        raise RuntimeError(
            f"torch.distributed calls this process rank {rank} of {size}, but Horovod runs as rank {hvd.rank()} of "
            f"{hvd.size()}: start both in one way, or call hvd.shutdown() first"
        )
    _basics._keep_process_sets()
    hvd.barrier()  # nobody leaves before all keep their sets
    _leave_at_exit()


def start(store: dist.Store, rank: int, size: int, timeout: Optional[timedelta] = None) -> None:
    """Start the engine by means of the store, whichever launcher started this process. All ranks call this.

    Raises ValueError if it cannot be started, or if the ranks do not meet within ``timeout`` (by default
    HOROVOD_GLOO_TIMEOUT_SECONDS) after the store has all their names.
    """
    place = _place(store, rank, size)
    if timeout is not None:
        place["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(max(1, math.ceil(timeout.total_seconds())))
    with _environment(place):
        hvd.init(process_sets="dynamic")
    _leave_at_exit()


def _leave_at_exit() -> None:
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    """Operations under way end with the engine. Their callbacks get some time, unless one hangs."""
    hvd.shutdown()
    _ends.close()
    _threads.join(_LEAVE_S)


def _place(store: dist.Store, rank: int, size: int) -> dict[str, str]:
    """The variables that horovodrun would have set for this rank, by means of the store."""
    host = platform.node() or "localhost"
    # Each start has keys of its own, because the store may have been used for others.
    start = store.add(f"gorovod/starts/{rank}", 1)
    store.set(f"gorovod/{start}/host/{rank}", host)
    hosts = [store.get(f"gorovod/{start}/host/{r}").decode() for r in range(size)]
    if rank == 0:
        address = "127.0.0.1" if len(set(hosts)) == 1 else _own_address()
        key = secrets.token_bytes(32)
        try:
            offer = {"address": address, "port": _lib.serve(address, key, size), "key": key.hex()}
        except Exception as e:
            offer = {"error": str(e)}
        store.set(f"gorovod/{start}/rendezvous", json.dumps(offer))
    offer = json.loads(store.get(f"gorovod/{start}/rendezvous"))
    if "error" in offer:
        raise ValueError(f"rank 0 cannot serve the rendezvous: {offer['error']}")
    neighbours = [r for r in range(size) if hosts[r] == host]
    local_rank = neighbours.index(rank)
    of_hosts = [[r for r in range(size) if hosts[r] == h] for h in dict.fromkeys(hosts)]
    across = [ranks[local_rank] for ranks in of_hosts if len(ranks) > local_rank]
    return {
        "HOROVOD_HOSTNAME": host,
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(len(neighbours)),
        "HOROVOD_CROSS_RANK": str(across.index(rank)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": offer["address"],
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(offer["port"]),
        "HOROVOD_SECRET_KEY": offer["key"],
    }


def _own_address() -> str:
    """The address at which other hosts reach this one: that on the way to the master, or of this host's name."""
    target = os.environ.get("MASTER_ADDR") or socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 1))  # this sends nothing
        return probe.getsockname()[0]


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set these variables for a while. Later child processes are no ranks, and must not get the secret."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def horovod_rendezvous(
    url: str, timeout: timedelta = dist.constants.default_pg_timeout, **_: Any
) -> Iterator[tuple[dist.Store, int, int]]:
    """The rendezvous ``horovod://``: Horovod's ranks, and a store on rank 0's host."""
    hvd.init(process_sets="dynamic")
    rank, size = hvd.rank(), hvd.size()
    asked = parse_qs(urlparse(url).query)
    for name, value in (("rank", rank), ("world_size", size)):
        if asked.get(name, [str(value)])[0] not in (str(value), "-1"):
            raise ValueError(f"init_process_group was given {name}={asked[name][0]}, but Horovod has {value}")
    address = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 1))  # this sends nothing, and shows at which address this host is reached from there
        address = probe.getsockname()[0]
    store, failure = None, None
    if rank == 0:
        try:
            store = _tcp_store(address, 0, size, True, timeout)
        except Exception as e:
            failure = e
    place = hvd.broadcast_object(
        None if store is None else (address, store.port), root_rank=0, name="torch.distributed.store"
    )
    if place is None:
        raise failure or ValueError("rank 0 cannot open the store of torch.distributed")
    if store is None:
        address, port = place
        store = _tcp_store(address, port, size, False, timeout)
    yield store, rank, size
    raise RuntimeError("Unable to perform rerendezvous using horovod:// method")


def _tcp_store(address: str, port: int, size: int, is_master: bool, timeout: timedelta) -> dist.TCPStore:
    """A store that waits for no process. Port 0: the system chooses one."""
    arguments = {"timeout": timeout, "wait_for_workers": False}
    try:
        return dist.TCPStore(address, port, size, is_master, **arguments)
    except RuntimeError as e:
        if "libuv" not in str(e):  # Debian's PyTorch 2.6 wants it by default, but is built without it
            raise
        return dist.TCPStore(address, port, size, is_master, use_libuv=False, **arguments)


def register_rendezvous() -> None:
    """Offer ``horovod://``. ``env://``, the default, means the same if only horovodrun has set the environment."""
    dist.register_rendezvous_handler("horovod", horovod_rendezvous)
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers  # the package has a function so named
    by_environment = handlers["env"]

    def env_or_horovod(url: str, **arguments: Any) -> Iterator[tuple[dist.Store, int, int]]:
        theirs = "MASTER_ADDR" in os.environ or not _started_by_horovodrun()
        return (by_environment if theirs else horovod_rendezvous)(url, **arguments)

    _patches.put("torch-env-rendezvous", handlers, "env", env_or_horovod)
