"""Checks that the workers of a run can be ranks, before Ray Train gives them anything that they cannot read."""

from __future__ import annotations

from typing import Any

import ray

from horovod.ray import _checks
from horovod.ray.train import worker
from horovod.ray.train._inside import WorkerGroupCallback


class Suitability(WorkerGroupCallback):
    """Runs in Ray Train's controller."""

    def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
        """Raise RuntimeError, which names the nodes, if workers lack gorovod, or have other versions."""
        try:
            facts = ray.get([w.execute_async(worker.horovod_facts) for w in workers])
        except ray.exceptions.RayTaskError as error:  # the worker cannot import this package
            raise _checks.why_no_start(error) from error
        _checks.same_as_driver(facts)
        return {}
