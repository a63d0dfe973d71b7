"""A job on Spark that computes data for another: ``python -m horovod.spark.tensorflow.compute_worker FILE``."""

from __future__ import annotations

from typing import Any, Optional

import horovod.spark
from horovod.spark.common.backend import default_num_proc
from horovod.tensorflow.data import compute_worker
from horovod.tensorflow.data.compute_service import compute_worker_fn

__all__ = ["main"]


def main(
    dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60, num_proc: Optional[int] = None
) -> None:
    """Run the job in Spark tasks, until the training ends it.

    Args:
        dispatchers: how many dispatchers there are. The number of processes must be a multiple of it.
        dispatcher_side: which job runs the dispatchers: ``compute`` or ``training``.
        configfile: the file to write, where the training can read it.
        timeout: seconds for dispatchers and workers to start.
        num_proc: how many processes compute; by default, Spark's default parallelism.

    Raises:
        ValueError: the processes cannot be divided among the dispatchers, or there is no such side.
        RuntimeError: a process has failed.
    """
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    size = default_num_proc() if num_proc is None else num_proc
    config, service = compute_worker.start(dispatchers, dispatcher_side, configfile, timeout, size)
    try:
        horovod.spark.run(compute_worker_fn, args=(config,), num_proc=size)
    finally:
        service.shutdown()


def _options() -> dict[str, Any]:
    parser = compute_worker.parser(__doc__ or "")
    parser.add_argument("--num-proc", type=int, help="how many processes compute (Spark's default parallelism)")
    return vars(parser.parse_args())


if __name__ == "__main__":
    main(**_options())
