"""The actor that is a worker of an elastic job."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.ray import _facts, _secret, _sending, ray_logger
from horovod.ray.worker import BaseHorovodWorker

LEFT = "left"  # the answer of a worker that has ended without a result, because the job goes on without it
DONE = "done"


class ElasticWorker(BaseHorovodWorker):
    """One worker of an elastic job: a process that keeps its number although its rank may change."""

    def __repr__(self) -> str:
        return f"worker {os.environ.get('GOROVOD_ELASTIC_WORKER', '?')}"

    def prepare(self, variables: Mapping[str, str], job: Any, gpus: Optional[tuple[int, int]] = None) -> _facts.Facts:
        """Set the job's variables and its secret, and return where this process runs.

        ``job`` is the handle of the job's coordinator. ``gpus`` are the node's number of GPUs, and this worker's number
        among those of its host.
        """
        facts = _facts.of_this_process()
        self.update_env_vars({**variables, "HOROVOD_HOSTNAME": facts.node_id})
        if gpus is not None:
            self.update_env_vars({"CUDA_VISIBLE_DEVICES": ",".join(gpu_order(facts.gpu_ids, *gpus))})
        _secret.adopt(job)
        ray_logger.configure(_OfRankZero(job))
        return facts

    def work(self, func: Callable[[Any], Any], made_of: Optional[tuple[Any, Any, Any]] = None) -> tuple[str, Any]:
        """Run ``func``, and return how it ended, and its result.

        ``made_of`` is the argument of :meth:`start_executable_of`.
        """
        try:
            if made_of is not None:
                self.start_executable_of(made_of)
            value = _sending.call(lambda: self.execute(func), repr(self))
        except SystemExit as end:
            if end.code not in (None, 0):
                raise RuntimeError(f"the function has called sys.exit({end.code!r})") from end
            return LEFT, None
        if "horovod.common._job" in sys.modules:  # as at the end of a program
            from horovod.common import _job

            _job.shutdown()
        return DONE, value


class _OfRankZero:
    """The queue of ``ray_logger``: messages go to the coordinator, if this worker is rank 0 at the moment."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def put(self, message: Any) -> None:
        from horovod.common import _job

        if not _job.is_initialized() or _job.rank() == 0:
            self._job.tell.remote(message)


def gpu_order(own: Sequence[str], there: int, slot: int) -> list[str]:
    """All GPUs of the node, in an order in which this worker's GPUs from Ray are where its local rank looks for them.

    So ``torch.cuda.set_device(hvd.local_rank())`` chooses a different GPU on every worker.

    >>> gpu_order(["0"], 4, 2)
    ['2', '1', '0', '3']
    """
    if not all(gpu.isdigit() and int(gpu) < there for gpu in own):
        return list(own)
    order = [str(gpu) for gpu in range(there)]
    if own and slot < there and order[slot] != own[0]:
        at = order.index(own[0])
        order[slot], order[at] = order[at], order[slot]
    return order
