"""The placement of a job's workers: placement groups, and the actors in them."""

from __future__ import annotations

import abc
import uuid
from typing import Any, Optional

import ray
from ray.util.placement_group import PlacementGroup, get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from horovod.ray import _resources, _waiting
from horovod.ray._settings import MiniSettings
from horovod.ray.worker import BaseHorovodWorker

_LEAST = 0.0001  # Ray's unit of resources


def create_placement_group(
    resources_per_bundle: dict[str, float], num_bundles: int, pg_timeout: float, pg_strategy: str
) -> tuple[PlacementGroup, list[dict[str, float]]]:
    """Reserve ``num_bundles`` bundles of these resources, and return the group and its bundles.

    Blocks until the cluster has room. If that takes longer than ``pg_timeout`` seconds, it raises TimeoutError, which
    says what exists and what was asked for; then nothing stays reserved.
    """
    bundles = [dict(resources_per_bundle) for _ in range(num_bundles)]
    # Ray refuses a second group of the same name in one namespace; a driver may have several executors.
    name = f"horovod: {num_bundles} {pg_strategy}, {uuid.uuid4().hex[:8]}"
    group = ray.util.placement_group(bundles, strategy=pg_strategy, name=name)
    asked = _resources.asked(bundles, pg_strategy)
    try:
        ready = _waiting.until(group.ready(), pg_timeout, lambda: f"room for {asked}. {_resources.there()}")
    except BaseException:
        ray.util.remove_placement_group(group)
        raise
    if not ready:
        text = _resources.there()
        ray.util.remove_placement_group(group)
        raise TimeoutError(
            f"{_resources.TIMED_OUT} Waited {pg_timeout} s (placement_group_timeout_s) for {asked}. {text}"
        )
    return group, bundles


class BaseStrategy(abc.ABC):
    """Starts the workers of a job in a placement group.

    Attributes:
        placement_group: the group that the workers run in; None before :meth:`create_workers`.
        workers: their handles, in the order of their start.
    """

    placement_group: Optional[PlacementGroup] = None
    _created_placement_group: Optional[PlacementGroup] = None

    def __init__(
        self, settings: MiniSettings, use_gpu: bool = False, cpus_per_worker: float = 1, gpus_per_worker: int = 0
    ) -> None:
        self.settings = settings
        self.use_gpu = use_gpu
        self.cpus_per_worker = cpus_per_worker
        self.gpus_per_worker = gpus_per_worker
        self.workers: list[Any] = []

    @property
    @abc.abstractmethod
    def num_workers(self) -> int:
        """How many workers the job has."""

    @abc.abstractmethod
    def _reserve(self) -> list[int]:
        """Reserve the placement group, and return the index of each worker's bundle; -1 means any."""

    def create_workers(self, runtime_env: Optional[dict[str, Any]] = None) -> list[Any]:
        """Start the actors, and return their handles. Waits for room, but not for the actors."""
        bundles = self._reserve()
        actor = ray.remote(BaseHorovodWorker)
        for index, bundle in enumerate(bundles):
            where = PlacementGroupSchedulingStrategy(
                placement_group=self.placement_group, placement_group_bundle_index=bundle
            )
            self.workers.append(
                actor.options(
                    num_cpus=self.cpus_per_worker,
                    num_gpus=self.gpus_per_worker * int(self.use_gpu),
                    scheduling_strategy=where,
                ).remote(world_rank=index, world_size=len(bundles))
            )
        return self.workers

    def resources_per_worker(self) -> dict[str, float]:
        """The resources of one worker."""
        resources: dict[str, float] = {"CPU": self.cpus_per_worker}
        if self.use_gpu:
            resources["GPU"] = self.gpus_per_worker
        return {name: amount for name, amount in resources.items() if amount}

    def shutdown(self) -> None:
        """End the workers, and release the placement group if it was made here."""
        workers, group = self.workers, self._created_placement_group
        self.workers, self._created_placement_group, self.placement_group = [], None, None
        if not ray.is_initialized():
            return  # they have ended with the connection, and ray.kill would open another
        try:
            for worker in workers:
                ray.kill(worker)
            if group is not None:
                ray.util.remove_placement_group(group)
        except ray.exceptions.ActorHandleNotFoundError:
            pass  # they belong to an earlier connection


class ColocatedStrategy(BaseStrategy):
    """The same number of workers on each of some hosts."""

    def __init__(
        self, settings: MiniSettings, num_hosts: int, num_workers_per_host: int = 1, **per_worker: Any
    ) -> None:
        super().__init__(settings, **per_worker)
        self.num_hosts = num_hosts
        self.num_workers_per_host = num_workers_per_host

    @property
    def num_workers(self) -> int:
        """How many workers the job has."""
        return self.num_hosts * self.num_workers_per_host

    def _reserve(self) -> list[int]:
        of_host = {name: n * self.num_workers_per_host for name, n in self.resources_per_worker().items()}
        self.placement_group, _ = create_placement_group(
            _or_nothing(of_host), self.num_hosts, self.settings.placement_group_timeout_s, "STRICT_SPREAD"
        )
        self._created_placement_group = self.placement_group
        return [host for host in range(self.num_hosts) for _ in range(self.num_workers_per_host)]


class PGStrategy(BaseStrategy):
    """A number of workers on as few hosts as possible, or in an existing placement group.

    Args:
        settings: the job's settings.
        num_workers: how many workers.
        placement_group: the group to use; by default the one that this process runs in, if there is one.
        force_create_placement_group: make a new group even then.
        per_worker: ``use_gpu``, ``cpus_per_worker`` and ``gpus_per_worker``.
    """

    def __init__(
        self,
        settings: MiniSettings,
        num_workers: int,
        placement_group: Optional[PlacementGroup] = None,
        force_create_placement_group: bool = False,
        **per_worker: Any,
    ) -> None:
        super().__init__(settings, **per_worker)
        self._num_workers = num_workers
        self._given = placement_group
        self._force = force_create_placement_group

    @property
    def num_workers(self) -> int:
        """How many workers the job has."""
        return self._num_workers

    def _reserve(self) -> list[int]:
        if not self._force:
            self.placement_group = self._given or get_current_placement_group()
        if self.placement_group is not None:
            _resources.check_room(self.placement_group, self.resources_per_worker(), self._num_workers)
            return [-1] * self._num_workers
        self.placement_group, _ = create_placement_group(
            _or_nothing(self.resources_per_worker()),
            self._num_workers,
            self.settings.placement_group_timeout_s,
            "PACK",
        )
        self._created_placement_group = self.placement_group
        return list(range(self._num_workers))


def _or_nothing(resources: dict[str, float]) -> dict[str, float]:
    """A bundle must ask for something, so this asks for very little if the resources are empty."""
    return resources or {"CPU": _LEAST}
