"""Waiting for the workers of a run: the messages to the user, and the time limit."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Optional

import ray

from horovod.ray import _resources
from horovod.ray.train._inside import (
    DEFAULT_WORKER_GROUP_START_TIMEOUT_S,
    WORKER_GROUP_START_TIMEOUT_S_ENV_VAR,
    ControllerCallback,
    WorkerGroupCallback,
)

_SAY_AFTER_S = 5
_log = logging.getLogger("ray.train.horovod")


class Patience(ControllerCallback, WorkerGroupCallback):
    """Runs in Ray Train's controller. ``limit_s`` limits each wait for resources; with None, Ray Train decides."""

    def __init__(self, limit_s: Optional[float]) -> None:
        self._limit_s = limit_s
        self._since: Optional[float] = None  # when this wait began, across all attempts of Ray Train
        self._wanted = ""

    def after_controller_start(self, train_run_context: Any) -> None:
        """Make Ray Train return from an attempt in time. The controller's process belongs to this run alone."""
        if self._limit_s is not None:
            theirs = float(os.environ.get(WORKER_GROUP_START_TIMEOUT_S_ENV_VAR, DEFAULT_WORKER_GROUP_START_TIMEOUT_S))
            os.environ[WORKER_GROUP_START_TIMEOUT_S_ENV_VAR] = f"{min(self._limit_s, theirs):g}"

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """Before each attempt: raise TimeoutError if the earlier attempts have used up the time."""
        c = worker_group_context
        self._wanted = _resources.asked([c.resources_per_worker] * c.num_workers, c.placement_strategy)
        now = time.monotonic()
        if self._since is None:
            self._since = now
        elif self._limit_s is not None and now - self._since >= self._limit_s:
            raise TimeoutError(
                f"{_resources.TIMED_OUT} Waited {self._limit_s:g} s (placement_group_timeout_s of HorovodConfig) for "
                f"{self._wanted}. {_resources.there()}"
            )

    @contextlib.contextmanager
    def on_worker_group_start(self) -> Iterator[None]:
        """Around an attempt to start the workers."""
        timer = threading.Timer(_SAY_AFTER_S, self._say)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def after_worker_group_start(self, worker_group: Any) -> None:
        """The workers exist now, so the next wait begins anew."""
        self._since = None

    def _say(self) -> None:
        if _reserved():
            _log.info("Waiting for Ray to start the workers. Room for %s is reserved.", self._wanted)
        else:
            _log.info("Waiting for room for %s. %s", self._wanted, _resources.there())


def _reserved() -> bool:
    """Whether Ray has reserved all resources for this job. The last digits of a group's number are the job's."""
    job = ray.get_runtime_context().get_job_id()
    groups = ray.util.placement_group_table().items()
    return all(group["state"] in ("CREATED", "REMOVED") for number, group in groups if number.endswith(job))
