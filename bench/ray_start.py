"""How long workers of Ray take from the call to their first allreduce, beside Ray Train's own TorchTrainer.

    build/ray/bin/python bench/ray_start.py --rounds 3

Starts a cluster on this machine. In each round every way starts once, in an order that rotates. TorchTrainer starts
twice, so that the table shows how far two measurements of one thing are apart. A warm-up round is not
counted. The time ends when rank 0 has the result of its first allreduce. It includes the start of the workers'
processes and their imports of PyTorch, but not the start of the cluster.
"""

import argparse
import functools
import os
import tempfile
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import paired
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from horovod.ray import RayExecutor
from horovod.ray.train import HorovodTrainer


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

    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    return time.time()


def by_executor(workers, storage):
    executor = RayExecutor(num_workers=workers)
    executor.start()
    ended = executor.run(first_allreduce)[0]
    executor.shutdown()
    return ended


def by_horovod_trainer(workers, storage):
    return (
        HorovodTrainer(
            first_allreduce,
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage),
        )
        .fit()
        .return_value
    )


def by_torch_trainer(workers, storage):
    return (
        TorchTrainer(
            first_allreduce_of_gloo,
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(storage_path=storage),
        )
        .fit()
        .return_value
    )


WAYS = {
    "RayExecutor": by_executor,
    "TorchTrainer, gloo": by_torch_trainer,
    "HorovodTrainer": by_horovod_trainer,
    "TorchTrainer, gloo, again": by_torch_trainer,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ray.init(address="local", num_cpus=args.workers, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as storage:

        def timed(way):
            start = time.time()
            return way(args.workers, storage) - start

        seconds = paired.measure({name: functools.partial(timed, way) for name, way in WAYS.items()}, args.rounds)
    ray.shutdown()
    paired.table(f"{args.workers} workers by", seconds, "TorchTrainer, gloo")


if __name__ == "__main__":
    main()
