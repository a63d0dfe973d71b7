"""Where a worker runs, and its versions: those of all workers must suit the driver's."""

from __future__ import annotations

import os
import platform
import socket
from typing import NamedTuple

import horovod


class Facts(NamedTuple):
    """The facts of one process."""

    node_id: str
    hostname: str
    address: str
    pid: int
    gpu_ids: list[str]
    python: str
    gorovod: str
    package: str
    stderr: str  # the path of the file that stderr goes to, if there is one
    hears: bool = False  # it can be interrupted


class Place(NamedTuple):
    """The host of one rank."""

    rank: int
    facts: Facts

    def __str__(self) -> str:
        f = self.facts
        return f"rank {self.rank} (pid {f.pid} on {f.hostname}, {f.address}, node {f.node_id[:8]})"


def of_this_process() -> Facts:
    """The facts of the actor, or driver, that this process is."""
    import ray

    context = ray.get_runtime_context()
    return Facts(
        node_id=context.get_node_id(),
        hostname=socket.gethostname(),
        address=ray.util.get_node_ip_address(),
        pid=os.getpid(),
        gpu_ids=[str(gpu) for gpu in ray.get_gpu_ids()],
        python=platform.python_version(),
        gorovod=horovod.__version__,
        package=os.path.dirname(horovod.__file__),
        stderr=_file_of(2),
    )


def _file_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
