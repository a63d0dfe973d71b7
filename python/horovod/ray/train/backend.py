"""How Ray Train's controller makes its workers the ranks of a job, each time that it starts them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ray
from ray.train.backend import Backend

from horovod.ray._coordinator import Coordinator
from horovod.ray._settings import MiniSettings
from horovod.ray.train import worker

_SHUTDOWN_S = 10  # much more than the engine takes, which waits for nobody


class HorovodBackend(Backend):
    """Tells each worker its rank, where the ranks meet, and their secret."""

    share_cuda_visible_devices = True  # so that the device's number is hvd.local_rank()

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Make the workers ranks, with a HorovodConfig. ``worker_group`` has them by rank, node by node."""
        workers = [w.metadata for w in worker_group.get_workers()]
        head = worker_group.get_workers()[0].actor
        rendezvous = worker_group.execute_single(
            0, worker.horovod_serve_rendezvous, len(workers), backend_config.interfaces()
        )
        variables = {**backend_config.environment(), **rendezvous}
        ray.get(
            [
                worker_group.execute_single_async(
                    rank, worker.horovod_join, head if rank > 0 else None, {**variables, **place}
                )
                for rank, place in _places(workers).items()
            ]
        )

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        """Have workers that are done leave the job. A dead one answers at once, with an error that does not matter."""
        calls = worker_group.execute_async(worker.horovod_shutdown)
        ray.wait(calls, num_returns=len(calls), timeout=_SHUTDOWN_S)


def _places(workers: list[Any]) -> dict[int, dict[str, Any]]:
    """The place of each rank, as variables. Errors name hosts, so a host has its name there, not Ray's number."""
    nodes_of_name = Counter({w.node_id: w.hostname for w in workers}.values())
    coordinator = Coordinator(MiniSettings())
    for rank, w in enumerate(workers):
        # Nodes of a cluster on one machine have one name between them.
        host = w.hostname if nodes_of_name[w.hostname] == 1 else f"{w.hostname}-{w.node_id[:8]}"
        coordinator.register(w.hostname, host, rank)
    return coordinator.finalize_registration()
