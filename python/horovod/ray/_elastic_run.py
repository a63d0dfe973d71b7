"""The driver's end of an elastic job: it starts the coordinator, passes its messages on, and collects the results."""

from __future__ import annotations

import time
from typing import Any, Mapping, Optional

import ray
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from horovod.ray import _deaths, _given, _resources
from horovod.ray._elastic_job import ElasticJob, Result, Spec
from horovod.ray._saying import say
from horovod.ray.adapter import Callbacks
from horovod.runner.elastic import driver
from horovod.runner.elastic.discovery import HostDiscovery

_AT_ONCE = 64  # calls of the coordinator's methods
_FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated"
)


running: list[Any] = []  # the coordinators of this process's jobs


class ElasticJobError(RuntimeError):
    """An elastic job has failed. ``rank`` is the rank of the worker whose failure counts, if there is one.

    ``__cause__`` is Ray's error: a copy of the worker's exception, or an ActorDiedError.
    """

    rank: Optional[int] = None


def run(spec: Spec, discovery: Optional[HostDiscovery] = None, callbacks: Callbacks = None) -> list[Any]:
    """Run the job, and return its workers' results, by rank. ``discovery``, if given, finds the hosts."""
    job = ray.remote(ElasticJob).options(**_options(spec.name)).remote()
    running.append(job)
    try:
        ended = job.run.options(name=f"horovod: {spec.name}, elastic").remote(spec)
        finder = _Finder(job, discovery)
        while not ray.wait([ended], timeout=0)[0]:
            finder.look()
            _pass_on(ray.get(job.news.remote()), callbacks)
        result = ray.get(ended)
        _pass_on(ray.get(job.news.remote(0.0)), callbacks)
        return _results(result, spec)
    except (RayActorError, OutOfMemoryError) as e:
        raise ElasticJobError(
            f"{_FAILED}: the coordinator of the job has died, and its workers with it. Ray says: {_deaths.point(e)}"
        ) from None
    finally:
        running.remove(job)
        ray.kill(job)  # Ray then ends the remaining workers, which belong to it


def _options(name: str) -> dict[str, Any]:
    """The coordinator's node: the driver's own, or the head of the cluster if the driver is a client."""
    options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": _AT_ONCE}
    if ray.util.client.ray.is_connected():
        options["resources"] = {"node:__internal_head__": 0.001}
    else:
        node_id = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return options


class _Finder:
    """Asks a discovery for the hosts regularly, and tells the coordinator of changes."""

    def __init__(self, job: Any, discovery: Optional[HostDiscovery]) -> None:
        self._job = job
        self._discovery = discovery
        self._next = 0.0
        self._known: Optional[Mapping[str, int]] = None
        self._fault = ""

    def look(self) -> None:
        if self._discovery is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + driver.DISCOVER_HOSTS_FREQUENCY_SECS
        try:
            found = _given.hosts(self._discovery.find_available_hosts_and_slots())
        except Exception as error:
            if self._known is None:
                raise
            if self._fault != repr(error):
                say(f"discover hosts: {error!r}; it is tried again")
            self._fault = repr(error)
            return
        if self._fault:
            say("discover hosts: it works again")
        self._fault = ""
        if found != self._known:
            self._known = found
            self._job.offer.remote(found)


def _pass_on(news: list[tuple[str, Any]], callbacks: Callbacks) -> None:
    for kind, what in news:
        if kind == "log":
            for callback in callbacks or ():
                callback(what)
        else:
            say(what)


def _results(result: Result, spec: Spec) -> list[Any]:
    outcome = result.outcome
    if outcome.finished:
        return list(ray.get(list(result.values.values())))
    if outcome.never_formed:
        raise TimeoutError(
            f"{_resources.TIMED_OUT} {outcome.text}. Asked for: at least {spec.config['min']} workers that need "
            f"{_resources.words(spec.per_worker)} each. {result.there}"
        )
    failure = outcome.failure
    if failure is None:
        raise ElasticJobError(f"{_FAILED}: {outcome.text}")
    who = f"rank {failure.rank}: " if failure.worker in outcome.ranks else ""
    why = f" ({outcome.text})" if outcome.text else ""
    error = ElasticJobError(f"{_FAILED}: {who}{failure.text}{why}{_deaths.shown(result.stderr)}")
    error.rank = failure.rank
    raise error from _raised(result.error)


def _raised(reference: Any) -> Optional[BaseException]:
    """The worker's exception."""
    if reference is None:
        return None
    try:
        ray.get(reference)
    except Exception as error:
        return error
    return None
