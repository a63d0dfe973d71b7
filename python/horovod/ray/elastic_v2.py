"""Elastic jobs of RayExecutor: how their hosts are found, and how they are started."""

from __future__ import annotations

import random
import time
from typing import Any, Callable, Mapping, Optional, Sequence

import ray

from horovod.ray import _elastic_hosts, _elastic_job, _elastic_run, _given, _pickling
from horovod.ray._saying import say
from horovod.ray._static import _name, _work
from horovod.ray.adapter import Adapter, Callbacks
from horovod.runner import _elastic_settings
from horovod.runner.elastic import driver
from horovod.runner.elastic.discovery import HostDiscovery

__all__ = ["ElasticAdapter", "RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(HostDiscovery):
    """Finds the nodes of a Ray cluster, and how many workers each has room for.

    Args:
        use_gpu: workers need GPUs.
        cpus_per_worker: CPUs that a worker needs.
        gpus_per_worker: GPUs that a worker needs, if ``use_gpu``; None is 1.

    Example:
        >>> list(RayHostDiscovery(cpus_per_worker=2).find_available_hosts_and_slots().values())
        [2]
    """

    def __init__(self, use_gpu: bool = False, cpus_per_worker: float = 1, gpus_per_worker: Optional[int] = 1) -> None:
        self.use_gpu = use_gpu
        self.cpus_per_worker = cpus_per_worker
        self.gpus_per_worker = 1 if gpus_per_worker is None else gpus_per_worker

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Look at the living nodes of the cluster.

        Returns:
            Their addresses, each with its slots. Nodes without slots are left out.
        """
        per_worker = per_worker_resources(self.cpus_per_worker, self.gpus_per_worker if self.use_gpu else 0)
        hosts: dict[str, int] = {}
        for node in ray.nodes():
            if node.get("Alive", node.get("alive")):
                slots = _elastic_hosts.slots(node["Resources"], per_worker)
                if slots > 0:
                    address = node["NodeManagerAddress"]
                    hosts[address] = hosts.get(address, 0) + slots
        return hosts


class TestDiscovery(RayHostDiscovery):
    """Makes hosts come and go at random, for drills: each change adds or removes one host.

    Args:
        min_hosts: the fewest hosts.
        max_hosts: the most.
        change_frequency_s: seconds between changes.
        use_gpu: as for RayHostDiscovery, like the next two.
        cpus_per_worker: CPUs that a worker needs.
        gpus_per_worker: GPUs that a worker needs.
        verbose: print each change.
        _graceful: a host that goes leaves at the next commit. Otherwise its workers are killed, too.

    Example:
        >>> from horovod.ray.elastic_v2 import TestDiscovery
        >>> discovery = TestDiscovery(min_hosts=1, max_hosts=2, change_frequency_s=60)
        >>> len(discovery.find_available_hosts_and_slots())
        1
    """

    __test__ = False  # it is no test for pytest

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: Optional[int] = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker)
        self._least = min_hosts
        self._most = max_hosts
        self._every = change_frequency_s
        self._verbose = verbose
        self._graceful = _graceful
        self._removed: set[str] = set()
        self._next = time.monotonic() + change_frequency_s
        self._random = random.Random()

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Make a change, if it is time, and return the present hosts.

        Returns:
            The addresses of the hosts, each with its slots.
        """
        there = super().find_available_hosts_and_slots()
        self._removed &= set(there)
        kept = [host for host in there if host not in self._removed][: self._most]
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every
            kept = self._change(there, kept)
        return {host: there[host] for host in kept}

    def _change(self, there: Mapping[str, int], kept: list[str]) -> list[str]:
        can_come = sorted(self._removed) if len(kept) < self._most else []
        can_go = kept if len(kept) > self._least else []
        if not can_come and not can_go:
            return kept
        comes = bool(can_come) and (not can_go or self._random.random() < 0.5)
        host = self._random.choice(can_come if comes else can_go)
        if self._verbose:
            say(f"TestDiscovery: host {host} {'comes' if comes else 'goes'}")
        if comes:
            self._removed.discard(host)
            return [*kept, host]
        self._removed.add(host)
        if not self._graceful:
            kill_workers_of(host)
        return [h for h in kept if h != host]


def kill_workers_of(address: str) -> None:
    """Kill the elastic workers of this driver's jobs on the nodes with this address."""
    for job in list(_elastic_run.running):
        job.kill_workers.remote(address)


def per_worker_resources(cpus: float, gpus: float) -> dict[str, float]:
    """The resources of one worker."""
    return {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}


class ElasticAdapter(Adapter):
    """A job whose workers come and go. Each call of :meth:`run` starts them, and they end with it.

    Args:
        settings: the job's settings. If ``override_discovery`` is False, the attribute ``discovery`` finds the hosts.
        min_workers: the fewest workers with which the job can go on.
        max_workers: the most workers; None: as many as there is room for.
        use_gpu: workers need GPUs.
        cpus_per_worker: CPUs that a worker takes.
        gpus_per_worker: GPUs that a worker takes.
        override_discovery: look for the hosts in Ray.
        reset_limit: how often the job may be formed anew; None is any number of times.
        cooldown_range: for how many seconds a failed worker's slot stays unused; None: for ever.
        elastic_timeout: seconds for each wait for room, and for workers.

    Raises:
        ValueError: arguments exclude one another, or make no sense.

    Example:
        >>> from horovod.ray.runner import MiniSettings
        >>> adapter = ElasticAdapter(MiniSettings(elastic=True), min_workers=1, max_workers=2)
        >>> adapter.start()
        >>> adapter.run(os.getpid) != [os.getpid()]
        True
        >>> adapter.shutdown()
    """

    def __init__(
        self,
        settings: Any,
        min_workers: int,
        max_workers: Optional[int] = None,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: Optional[int] = None,
        override_discovery: bool = True,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[Sequence[float]] = None,
        elastic_timeout: float = 600,
    ) -> None:
        if min_workers < 1:
            raise ValueError(f"min_workers={min_workers}: at least 1 is needed")
        if max_workers is not None and max_workers < min_workers:
            raise ValueError(f"max_workers={max_workers} is below min_workers={min_workers}")
        _given.cooldown_range(cooldown_range)
        _given.amount("elastic_timeout", elastic_timeout, least=0.001, most=1e6)
        if reset_limit is not None:
            _given.positive("reset_limit", reset_limit, least=0)
        to_start = min_workers
        if settings.num_proc is not None:
            to_start = _given.positive("settings.num_proc", settings.num_proc)
            if not min_workers <= to_start <= (max_workers or to_start):
                upto = f"max_workers={max_workers}" if max_workers else "on"
                raise ValueError(f"settings.num_proc={to_start} is not from min_workers={min_workers} to {upto}")
        self.settings = settings
        self._discovery: Optional[HostDiscovery] = None
        if not override_discovery:
            self._discovery = getattr(settings, "discovery", None)
            if self._discovery is None:
                raise ValueError("override_discovery=False needs settings.discovery, an object that finds hosts")
        elif getattr(settings, "discovery", None) is not None:
            say("settings.discovery is not used: Ray finds the hosts, unless the executor has override_discovery=False")
        gpus = (1 if gpus_per_worker is None else gpus_per_worker) if use_gpu else 0
        self._per_worker = per_worker_resources(cpus_per_worker, gpus)
        if not self._per_worker:
            raise ValueError("cpus_per_worker=0 without GPUs: then there is no telling how many workers have room")
        self._config: dict[str, Any] = {
            "np": to_start,
            "min": min_workers,
            "max": max_workers or 0,
            "reset_limit": reset_limit,
            "cooldown": None if cooldown_range is None else list(cooldown_range),
            "timeout": elastic_timeout,
            "interfaces": list(settings.nics or ()),
            "terms": {"min": "min_workers", "timeout": "elastic_timeout", "cooldown": "cooldown_range"},
        }
        self._variables: Optional[dict[str, str]] = None
        self._executable: Any = None

    def start(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, Any]] = None,
    ) -> None:
        extra = {name: str(value) for name, value in (extra_env_vars or {}).items()}
        self._variables = {**self.settings._environment(), **extra}
        if executable_cls is not None:
            made_of = (executable_cls, executable_args, executable_kwargs)
            self._executable = _pickling.put(made_of, "executable_cls")

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks = None) -> list[Any]:
        return self._run(fn, _name(fn), callbacks)

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Callbacks = None,
    ) -> list[Any]:
        return self._run(_work(fn, args, kwargs), _name(fn), callbacks)

    def _run(self, work: Callable[[Any], Any], name: str, callbacks: Callbacks) -> list[Any]:
        if self._variables is None:
            raise RuntimeError("the job has not been started: call start() first")
        spec = _elastic_job.Spec(
            config={**self._config, **_elastic_settings.told_by_environment(self._variables)},
            per_worker=self._per_worker,
            variables=self._variables,
            name=name,
            work=_pickling.put(work, name),
            executable=self._executable,
            discover_every=driver.DISCOVER_HOSTS_FREQUENCY_SECS if self._discovery is None else None,
        )
        return _elastic_run.run(spec, self._discovery, callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[Any]:
        raise NotImplementedError("an elastic job has no run_remote: its workers come and go. Use run")

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        raise NotImplementedError("an elastic job has no execute_single: its workers come and go. Use execute")

    def shutdown(self) -> None:
        self._variables, self._executable = None, None
