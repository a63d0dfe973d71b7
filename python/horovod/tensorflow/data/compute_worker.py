"""A job that computes data for another: ``horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker FILE``."""

from __future__ import annotations

import argparse

import horovod.tensorflow as hvd
from horovod.runner.common.service.compute_service import ComputeService
from horovod.runner.common.util import secret
from horovod.tensorflow.data.compute_service import TfDataServiceConfig, compute_worker_fn

__all__ = ["main"]


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int = 60) -> None:
    """Run one process of the job, until the training ends it. The training finds the job by the file from rank 0.

    Args:
        dispatchers: how many dispatchers there are. The number of processes must be a multiple of it.
        dispatcher_side: which job runs the dispatchers: ``compute`` or ``training``.
        configfile: the file to write, where the training can read it.
        timeout: seconds for dispatchers and workers to start.

    Raises:
        ValueError: the processes cannot be divided among the dispatchers, or there is no such side.
        TimeoutException: the dispatcher has not started in time.
    """
    hvd.init()
    check(dispatchers, hvd.size())  # on every rank: the others would wait for rank 0's broadcast
    config = None
    service = None
    if hvd.rank() == 0:
        config, service = start(dispatchers, dispatcher_side, configfile, timeout, hvd.size())
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


def check(dispatchers: int, size: int) -> None:
    """Raise ValueError if ``size`` processes cannot be divided among the dispatchers."""
    if dispatchers < 1 or size % dispatchers:
        raise ValueError(f"{size} processes cannot be divided among {dispatchers} dispatchers: run a multiple of them")


def start(
    dispatchers: int, dispatcher_side: str, configfile: str, timeout: int, size: int
) -> tuple[TfDataServiceConfig, ComputeService]:
    """Start the compute service of a job of ``size`` processes, and write its file.

    Raises:
        ValueError: the processes cannot be divided among the dispatchers, or there is no such side.
    """
    check(dispatchers, size)
    workers = size // dispatchers
    key = secret.make_secret_key()
    service = ComputeService(dispatchers, workers, key)
    try:
        config = TfDataServiceConfig(dispatchers, workers, dispatcher_side, service.addresses(), key, timeout)
        config.write(configfile)
    except BaseException:
        service.shutdown()
        raise
    return config, service


if __name__ == "__main__":
    main(**vars(parser(__doc__ or "").parse_args()))
