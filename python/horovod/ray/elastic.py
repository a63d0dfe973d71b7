"""ElasticRayExecutor, the older interface for elastic jobs; ``RayExecutor(min_workers=…)`` is the newer one."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.ray import _given, _settings, elastic_v2
from horovod.ray._settings import ElasticSettings as ElasticSettings
from horovod.ray.adapter import Callbacks

__all__ = ["ElasticRayExecutor", "RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(elastic_v2.RayHostDiscovery):
    """Finds the nodes of a Ray cluster, and how many workers each has room for.

    Args:
        use_gpu: workers need GPUs.
        cpus_per_slot: CPUs that a worker needs.
        gpus_per_slot: GPUs that a worker needs, if ``use_gpu``.

    Example:
        >>> list(RayHostDiscovery(cpus_per_slot=2).find_available_hosts_and_slots().values())
        [2]
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: float = 1, gpus_per_slot: Optional[int] = 1) -> None:
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)


class TestDiscovery(elastic_v2.TestDiscovery):
    """Makes hosts come and go at random, for drills: each change adds or removes one host.

    Args:
        min_hosts: the fewest hosts.
        max_hosts: the most.
        change_frequency_s: seconds between changes.
        use_gpu: as for RayHostDiscovery, like the next two.
        cpus_per_slot: CPUs that a worker needs.
        gpus_per_slot: GPUs that a worker needs.
        verbose: print each change.
        _graceful: a host that goes leaves at the next commit. Otherwise its workers are killed, too.

    Example:
        >>> from horovod.ray.elastic import TestDiscovery
        >>> discovery = TestDiscovery(min_hosts=1, max_hosts=2, change_frequency_s=60)
        >>> len(discovery.find_available_hosts_and_slots())
        1
    """

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: Optional[int] = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        super().__init__(
            min_hosts, max_hosts, change_frequency_s, use_gpu, cpus_per_slot, gpus_per_slot, verbose, _graceful
        )


class ElasticRayExecutor:
    """An elastic job on Ray.

    Args:
        settings: from :meth:`create_settings`, or Horovod's own (``horovod.runner.elastic.settings.ElasticSettings``).
        use_gpu: give each worker GPUs.
        cpus_per_slot: how many of Ray's CPUs each worker takes.
        gpus_per_slot: how many GPUs, 1 by default.
        env_vars: variables of the workers' environment.
        override_discovery: look for the hosts in Ray; otherwise ``settings.discovery`` finds them.

    Raises:
        ValueError: arguments exclude one another, or make no sense.

    Example:
        >>> settings = ElasticRayExecutor.create_settings(min_num_proc=2, max_num_proc=8)
        >>> executor = ElasticRayExecutor(settings)
        >>> executor.start()
        >>> losses = executor.run(train)
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: Optional[int] = None,
        reset_limit: Optional[int] = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        nics: Optional[Sequence[str]] = None,
        min_np: Optional[int] = None,
        max_np: Optional[int] = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """Make the settings of a job.

        Args:
            min_num_proc: the fewest workers with which the job can go on.
            max_num_proc: the most workers; None: as many as there is room for.
            reset_limit: how often the job may be formed anew.
            elastic_timeout: seconds for each wait for room, and for workers.
            timeout_s: seconds until all ranks must have met in ``hvd.init()``.
            ssh_identity_file: without effect, as the executor says: nothing is started by ssh.
            nics: names of the network interfaces that the ranks may use; all by default.
            min_np: old name of ``min_num_proc``, which wins.
            max_np: old name of ``max_num_proc``, which wins.
            kwargs: ``cooldown_range``, ``discovery``, ``num_proc``, ``verbose`` or ``key``, as in ElasticSettings.

        Returns:
            The settings.

        Raises:
            TypeError: for other parameters.
        """
        for old, new in ((min_np, "min_num_proc"), (max_np, "max_num_proc")):
            if old is not None:
                warnings.warn(f"{new[:3]}_np is deprecated, use {new}", DeprecationWarning, stacklevel=2)
        known = {"cooldown_range", "discovery", "num_proc", "verbose", "key"}
        _settings.refuse_unknown(
            "ElasticRayExecutor.create_settings",
            {k: v for k, v in kwargs.items() if k not in known},
            {"placement_group_timeout_s": "it is elastic_timeout"},
        )
        return ElasticSettings(
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            timeout_s=timeout_s,
            ssh_identity_file=ssh_identity_file,
            nics=nics,
            elastic=True,
            **kwargs,
        )

    def __init__(
        self,
        settings: Any,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: Optional[int] = None,
        env_vars: Optional[Mapping[str, Any]] = None,
        override_discovery: bool = True,
    ) -> None:
        if gpus_per_slot is not None and not use_gpu:
            raise ValueError("gpus_per_slot is set, but use_gpu is False")
        if gpus_per_slot is not None and gpus_per_slot < 1:
            raise ValueError(f"gpus_per_slot must be >= 1: Got {gpus_per_slot}.")
        self.settings = _given.settings(settings)
        self.settings.elastic = True
        told = _settings.elastic_arguments(self.settings)
        self._env_vars = dict(env_vars or {})
        self._adapter = elastic_v2.ElasticAdapter(
            self.settings,
            use_gpu=use_gpu,
            cpus_per_worker=cpus_per_slot,
            gpus_per_worker=gpus_per_slot,
            override_discovery=override_discovery,
            **{"min_workers": self.settings.num_proc or 1, **told},
        )

    def start(self) -> None:
        """Prepare. :meth:`run` starts the workers, and they end with it."""
        self._adapter.start(extra_env_vars=self._env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: Callbacks = None) -> list[Any]:
        """Call ``worker_fn()`` on every worker, and return the results by rank. Blocks.

        Args:
            worker_fn: the function; it trains under ``hvd.elastic.run``.
            callbacks: functions of one argument. Each is called here with every dictionary that rank 0 gives to
                ``horovod.ray.ray_logger.log``, while the workers run.

        Returns:
            The results of the workers that exist at the end, by rank.

        Raises:
            RuntimeError: the job has failed; the text and the cause say which rank failed, and how.
            TimeoutError: the cluster had no room for the least number of workers.
            TypeError: ``worker_fn`` cannot be pickled.
        """
        return self._adapter.run(worker_fn, callbacks=callbacks)
