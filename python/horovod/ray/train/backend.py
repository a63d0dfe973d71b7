"""How Ray Train's controller makes its workers the ranks of a job, each time it starts them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ray
from ray.train.backend import Backend

from horovod.ray._coordinator import Coordinator
from horovod.ray._settings import MiniSettings
from horovod.ray.train import worker

_SHUTDOWN_S = 10  # much more than the engine needs, which waits for no other rank


class HorovodBackend(Backend):
    """Gives each worker its rank, the meeting place of the ranks, and their secret."""

    share_cuda_visible_devices = True  # so that the device's number is hvd.local_rank()

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Make the workers ranks, by a HorovodConfig. ``worker_group`` has them by rank, node by node."""
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
        """Let finished workers leave the job. A dead one answers at once, with an error that does not matter."""
        calls = worker_group.execute_async(worker.horovod_shutdown)
        ray.wait(calls, num_returns=len(calls), timeout=_SHUTDOWN_S)


def _places(workers: list[Any]) -> dict[int, dict[str, Any]]:
    """The place of each rank, as variables. Errors name hosts, so hosts appear by name, not by Ray's number."""
    nodes_of_name = Counter({w.node_id: w.hostname for w in workers}.values())
    coordinator = Coordinator(MiniSettings())
    for rank, w in enumerate(workers):
        # Several nodes of a cluster on one machine share one name.
        host = w.hostname if nodes_of_name[w.hostname] == 1 else f"{w.hostname}-{w.node_id[:8]}"
        coordinator.register(w.hostname, host, rank)
    return coordinator.finalize_registration()
