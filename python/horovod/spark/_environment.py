"""The environment of a rank's process, and the GPUs that it sees."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence

_LOCAL_RANK_CHOOSES = "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX"
# Variables for Spark's own Python workers, and of another job that an ancestor of this process belonged to.
_NOT_FOR_RANKS = ("PYTHON_WORKER_", "PYTHON_DAEMON_", "PYTHON_UDF_", "SPARK_REUSE_WORKER", "SPARK_BUFFER_SIZE")
_OF_OTHER_JOBS = (
    "HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE "
    "HOROVOD_HOSTNAME HOROVOD_SECRET_KEY HOROVOD_GLOO_RENDEZVOUS_ADDR HOROVOD_GLOO_RENDEZVOUS_PORT HOROVOD_ELASTIC "
    "GOROVOD_ELASTIC_DRIVER GOROVOD_ELASTIC_WORKER GOROVOD_RESULT_FD GOROVOD_RUN_CALLER RANK WORLD_SIZE LOCAL_RANK "
    "LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT"
).split()


# Arrow's allocator. With Arrow's own choice, mimalloc, threads that read rows leave much unused memory.
_POOL = ("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")


def of_process(asked: Mapping[str, str]) -> dict[str, str]:
    """The variables of a rank's process: the executor's, and the user's in ``asked``."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_NOT_FOR_RANKS) and name not in _OF_OTHER_JOBS
    }
    variables.setdefault(*_POOL)
    variables.update({name: str(value) for name, value in asked.items() if name not in _OF_OTHER_JOBS})
    return variables


def gpus(context: Any, asked: Mapping[str, str]) -> list[str]:
    """The addresses of the GPUs that Spark has given to this task; none if local ranks are to choose."""
    if {**os.environ, **asked}.get(_LOCAL_RANK_CHOOSES) == "1":
        return []
    found = context.resources().get("gpu")
    return [] if found is None else [str(address) for address in found.addresses]


def visible(of_ranks: Sequence[Sequence[str]], local_rank: int) -> tuple[dict[str, str], list[str]]:
    """The variable that shows a host's GPUs to one of its ranks, and which of these the rank owns.

    The first GPU of each rank comes first, so that device ``hvd.local_rank()`` belongs to the rank.

    >>> visible([["4", "5"], ["0", "1"]], 1)
    ({'CUDA_VISIBLE_DEVICES': '4,0,5,1'}, ['1', '3'])
    """
    order = [addresses[0] for addresses in of_ranks if addresses]
    order += [address for addresses in of_ranks for address in addresses[1:]]
    order = list(dict.fromkeys(order))
    if not order:
        return {}, []
    own = [str(order.index(address)) for address in of_ranks[local_rank]]
    return {"CUDA_VISIBLE_DEVICES": ",".join(order)}, own
