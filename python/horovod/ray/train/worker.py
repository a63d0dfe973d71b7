"""Functions that the controller calls in each worker of Ray Train. Ray's pages show their names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import ray

from horovod.ray import _facts, _failing, _rendezvous, _secret

_trained = False  # the training function has returned in this process


def horovod_facts() -> _facts.Facts:
    """Where this worker runs, and its versions."""
    return _facts.of_this_process()


def horovod_serve_rendezvous(size: int, nics: Optional[Sequence[str]]) -> dict[str, str]:
    """In rank 0: make the job's secret, and serve its rendezvous. Returns the variables by which ranks find it."""
    os.environ.pop(_secret.VARIABLE, None)  # of another job, inside which the cluster was started
    return _rendezvous.establish(size, nics, _secret.own())


def horovod_secret() -> str:
    """In rank 0: the job's secret, for another worker. It travels only as a result, which Ray shows to nobody."""
    return _secret.own()


def horovod_join(server: Optional[Any], variables: dict[str, Any]) -> None:
    """Set the variables that ``hvd.init()`` reads. ``server`` is rank 0's actor; None in rank 0 itself."""
    if server is not None:
        call = server.execute.options(name=f"execute.{horovod_secret.__name__}")
        os.environ[_secret.VARIABLE] = ray.get(call.remote(horovod_secret))
    os.environ.update({name: str(value) for name, value in variables.items()})


@contextlib.contextmanager
def training() -> Iterator[None]:
    """Around the training function: sends an exception to the other ranks, which would otherwise wait."""
    global _trained
    with _failing.told():
        yield
    _trained = True


def horovod_shutdown() -> None:
    """Leave the job if the training function has returned, so that a timeline, for instance, is complete.

    If the function still runs, Ray Train ends the process because another rank has failed, and that failure counts.
    """
    if _trained:
        from horovod.common import _job

        if _job.is_initialized():
            _job.shutdown()
