"""A job that computes data for another: ``horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker FILE``."""

from __future__ import annotations

import argparse
from typing import Optional, Sequence

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

__all__ = ["main"]


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Run one process of the job. Rank 0 writes the file by which the training finds the service."""
    told = parser(__doc__ or "").parse_args(arguments)
    hvd.init()
    config = None
    service = None
    if hvd.rank() == 0:
        config, service = start(told, hvd.size())
    try:
        compute_worker_fn(hvd.broadcast_object(config, 0))
    finally:
        if service is not None:
            service.shutdown()


def parser(description: str) -> argparse.ArgumentParser:
    """The options of the job."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("configfile", help="the file to write, where the training can read it")
    made.add_argument("--dispatchers", type=int, default=1, help="how many dispatchers there are (1)")
    made.add_argument("--dispatcher-side", choices=("compute", "training"), default="compute", help="who runs them")
    made.add_argument("--timeout", type=int, default=60, help="seconds for dispatchers and workers to start (60)")
    return made


def start(told: argparse.Namespace, size: int) -> tuple[TfDataServiceConfig, ComputeService]:
    """Start the compute service of a job of ``size`` processes, and write its file.

    Raises:
        ValueError: the processes cannot be divided among the dispatchers.
    """
    if told.dispatchers < 1 or size % told.dispatchers:
        raise ValueError(
            f"{size} processes cannot be divided among {told.dispatchers} dispatchers: run a multiple of them"
        )
    workers = size // told.dispatchers
    key = secret.make_secret_key()
    service = ComputeService(told.dispatchers, workers, key)
    config = TfDataServiceConfig(
        told.dispatchers, workers, told.dispatcher_side, service.addresses(), key, told.timeout
    )
    config.write(told.configfile)
    return config, service


if __name__ == "__main__":
    main()
