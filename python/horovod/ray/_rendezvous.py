"""The meeting place of the ranks of a job that is not elastic: in the process of rank 0."""

from __future__ import annotations

from typing import Optional, Sequence

from horovod.common import _lib
from horovod.runner.util import network


def establish(size: int, nics: Optional[Sequence[str]], key: str) -> dict[str, str]:
    """Serve the rendezvous of ``size`` ranks in this process until it ends, or until the next call.

    Returns the variables that all ranks need in addition to ``key``, the job's secret. ``nics`` are the interfaces that
    the ranks may use. Without them the address is the one at which Ray's other nodes reach this one.
    """
    import ray

    address = network.get_driver_ip(nics) if nics else ray.util.get_node_ip_address()
    port = _lib.serve(address, bytes.fromhex(key), size)
    variables = {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    if nics:
        variables["HOROVOD_GLOO_IFACE"] = variables["NCCL_SOCKET_IFNAME"] = ",".join(nics)
    return variables
