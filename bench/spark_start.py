"""How long processes on Spark take from the call to their first allreduce, beside Spark's own TorchDistributor.

    build/spark/bin/python bench/spark_start.py --rounds 5

Makes one session on this machine. In each round every way starts once, in an order that rotates. TorchDistributor
starts twice, so that the table shows how far two measurements of one thing are apart. A warm-up round is
not counted. The time ends when rank 0 has the result of its first allreduce. It includes the start of the processes and
their imports of PyTorch, but not the start of the session.
"""

import argparse
import functools
import os
import sys
import time

os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Under Python 3.11 torchrun of PyTorch 1.13 needs these two settings: there it reads 0, its default, and 3 as None.
os.environ.setdefault("PET_REDIRECTS", "1")
os.environ.setdefault("PET_TEE", "1")

import paired
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

import horovod.spark


def first_allreduce():
    """Return the time at which this rank's first allreduce ended."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    return time.time()


def first_allreduce_of_gloo():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    ended = time.time()
    dist.destroy_process_group()
    return ended


def by_run(processes):
    return horovod.spark.run(first_allreduce, num_proc=processes)[0]


def by_torch_distributor(processes):
    distributor = TorchDistributor(num_processes=processes, local_mode=False, use_gpu=False)
    return distributor.run(first_allreduce_of_gloo)


WAYS = {
    "horovod.spark.run": by_run,
    "TorchDistributor, gloo": by_torch_distributor,
    "TorchDistributor, gloo, again": by_torch_distributor,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    session = (
        SparkSession.builder.master(f"local[{args.processes}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")

    def timed(way):
        start = time.time()
        return way(args.processes) - start

    seconds = paired.measure({name: functools.partial(timed, way) for name, way in WAYS.items()}, args.rounds)
    session.stop()
    paired.table(f"{args.processes} processes by", seconds, "TorchDistributor, gloo")


if __name__ == "__main__":
    main()
