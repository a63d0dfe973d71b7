"""A job on Spark that computes data for another: ``python -m horovod.spark.tensorflow.compute_worker FILE``."""

from __future__ import annotations

from typing import Optional, Sequence

import horovod.spark
from horovod.spark.common.backend import default_num_proc
from horovod.tensorflow.data import compute_worker
from horovod.tensorflow.data.compute_service import compute_worker_fn

__all__ = ["main"]


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Run the job in ``--num-proc`` tasks (by default, Spark's default parallelism), until it is told to end."""
    parser = compute_worker.parser(__doc__ or "")
    parser.add_argument("--num-proc", type=int, help="how many processes compute (Spark's default parallelism)")
    told = parser.parse_args(arguments)
    from pyspark.sql import SparkSession

    SparkSession.builder.getOrCreate()
    size = told.num_proc or default_num_proc()
    config, service = compute_worker.start(told, size)
    try:
        horovod.spark.run(compute_worker_fn, args=(config,), num_proc=size)
    finally:
        service.shutdown()


if __name__ == "__main__":
    main()
