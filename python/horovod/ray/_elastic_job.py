"""The coordinator of an elastic job: an actor that starts and ends the workers as the job's driver tells it."""

from __future__ import annotations

import dataclasses
import queue
import time
from typing import Any, Mapping, Optional

import ray
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayError, RayTaskError

from horovod.ray import _checks, _deaths, _elastic_hosts, _resources, _waiting
from horovod.ray._elastic_worker import DONE, ElasticWorker
from horovod.ray._facts import Facts
from horovod.ray._saying import logger
from horovod.ray._secret import JobSecret
from horovod.runner import _starter

_NEWS_S = 0.5
_TICK_S = 1.0
_MOST_TEXT = 400


@dataclasses.dataclass
class Spec:
    """The description of a job.

    Attributes:
        config: the settings of docs/drive.md, without version, key and address.
        per_worker: the resources of one worker.
        variables: of the workers' environment.
        name: the function's name, for Ray's pages.
        work: a reference to the function.
        executable: a reference to the parts of the function's object; None for none.
        discover_every: seconds between looks at Ray's nodes; None: another process offers the hosts.
    """

    config: Mapping[str, Any]
    per_worker: Mapping[str, float]
    variables: Mapping[str, str]
    name: str
    work: Any
    executable: Any = None
    discover_every: Optional[float] = 1.0


@dataclasses.dataclass
class Result:
    """How a job has ended, and references to the workers' results, in order of rank."""

    outcome: _starter.Outcome
    values: Mapping[int, Any]
    error: Any = None  # a reference to the exception of the worker whose failure counts
    there: str = ""  # the cluster's resources
    stderr: str = ""  # the last lines of the worker whose failure counts, if it has died


@dataclasses.dataclass
class _Worker(_starter.Worker):
    actor: Any = None
    facts: Optional[Facts] = None  # None until its process runs
    value: Any = None  # a reference
    ending: bool = False


class ElasticJob(JobSecret, _starter.Platform[_Worker]):
    """One job, from its start to its end. The methods above :meth:`run` may run at the same time as it."""

    def __init__(self) -> None:
        super().__init__()
        self._news: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._starter = _starter.Starter(self, _Worker, logger)
        self._values: dict[int, Any] = {}
        self._errors: dict[int, Any] = {}
        self._died: dict[int, Facts] = {}  # the workers that have died without an exception
        self._discover_at = 0.0
        self._word_at = 0.0
        self._pause = _waiting.FIRST_WORD_S
        self._waits = False

    def news(self, wait_s: float = _NEWS_S) -> list[tuple[str, Any]]:
        """The next messages: ``("say", text)`` or ``("log", message)``. Waits ``wait_s`` if there are none."""
        found = []
        try:
            found.append(self._news.get(timeout=wait_s))
            while True:
                found.append(self._news.get_nowait())
        except queue.Empty:
            return found

    def tell(self, message: Any) -> None:
        """Pass a message of rank 0 on to the driver's callbacks."""
        self._news.put(("log", message))

    def offer(self, hosts: Mapping[str, int]) -> None:
        """Tell which hosts exist, with how many slots, if this actor does not look for them."""
        self._starter.post("hosts", dict(hosts))

    def kill_workers(self, address: str) -> None:
        """Kill the workers on the nodes with this address, for drills."""
        self._starter.post("kill", address)

    def run(self, spec: Spec) -> Result:
        """Run the job to its end."""
        self._spec = spec
        self._nodes = _elastic_hosts.Nodes(spec.per_worker)
        self._starter.open(self.secret_key(), ray.util.get_node_ip_address(), spec.config, spec.variables)
        try:
            self._discover_if_due()
            outcome = self._starter.attend(min(spec.discover_every or _TICK_S, _TICK_S))
        finally:
            for worker in self._starter.workers.values():
                _kill(worker.actor)
            self._starter.close()
        failed = outcome.failure.worker if outcome.failure else -1
        stderr = _deaths.last_lines(self._died[failed]) if failed in self._died else ""
        return Result(outcome, outcome.by_rank(self._values), self._errors.get(failed), _resources.there(), stderr)

    def take(self, kind: str, *what: Any) -> None:
        if kind == "hosts":
            self._starter.offer(*what)
        elif kind == "kill":
            for worker in self._starter.workers.values():
                if worker.facts is not None and worker.facts.address == what[0]:
                    _kill(worker.actor)
        elif kind == "ready":
            self._joined(*what)
        elif kind == "ended":
            self._ended(*what)

    def look(self) -> None:
        self._tell_waits()
        self._discover_if_due()

    def say(self, text: str) -> None:
        self._news.put(("say", text))

    def _discover_if_due(self) -> None:
        every = self._spec.discover_every
        if every is not None and time.monotonic() >= self._discover_at:
            self._discover()
            self._discover_at = time.monotonic() + every

    def _discover(self) -> None:
        used: dict[str, list[int]] = {}
        for worker in self._starter.workers.values():
            if not worker.ending:
                used.setdefault(worker.host, []).append(worker.slot)
        self._starter.offer(self._nodes.offered(used))

    def end_worker(self, worker: _Worker, signum: int) -> None:
        worker.ending = True
        _kill(worker.actor)
        if worker.facts is None:  # Ray may start the process late, and then ends it; it has nothing of the job
            self._starter.left(worker)

    def start_worker(self, worker: _Worker, environment: Mapping[str, str]) -> None:
        self._nodes.touch(worker.host)
        try:
            where = self._nodes.options(worker.host)
        except LookupError as e:
            raise _starter.NotStarted(e) from None
        gpus = self._spec.per_worker.get("GPU", 0)
        worker.actor = (
            ray.remote(ElasticWorker)
            .options(num_cpus=self._spec.per_worker.get("CPU", 0), num_gpus=gpus, **where)
            .remote()
        )
        there = (_elastic_hosts.gpus(where), worker.slot) if gpus else None
        facts = worker.actor.prepare.options(name=f"horovod: start worker {worker.number}").remote(
            {**self._spec.variables, **environment}, ray.get_runtime_context().current_actor, there
        )
        self._await("ready", worker, facts)

    def _await(self, kind: str, worker: _Worker, ref: Any) -> None:
        """Have :meth:`take` get the result of ``ref``."""
        ref.future().add_done_callback(lambda done: self._starter.post(kind, worker, done))

    def _joined(self, worker: _Worker, done: Any) -> None:
        """Let a worker whose process runs do its work."""
        if worker.number not in self._starter.workers:
            return
        try:
            facts = done.result()
            _checks.same_as_driver([facts])
        except Exception as error:
            # If others run, they would wait for the answer.
            alone = not any(w.facts for w in self._starter.workers.values())
            self._fails(worker, _checks.why_no_start(error) if alone and isinstance(error, RayActorError) else error)
            return
        worker.facts = facts
        self._starter.started(worker, facts.pid)
        how, worker.value = worker.actor.work.options(
            name=f"horovod: {self._spec.name}, worker {worker.number}", num_returns=2
        ).remote(self._spec.work, self._spec.executable)
        self._await("ended", worker, how)

    def _ended(self, worker: _Worker, done: Any) -> None:
        error = done.exception()
        if error is not None:
            self._errors[worker.number] = worker.value
            self._fails(worker, error)
            return
        if done.result() == DONE:
            self._values[worker.number] = worker.value
        self._starter.left(worker)

    def _fails(self, worker: _Worker, error: BaseException) -> None:
        if isinstance(error, RayActorError) and self._spec.discover_every is not None:
            worker.ending = True
            self._nodes.touch(worker.host)
            if isinstance(error, ActorUnavailableError):
                self._nodes.suspect(worker.host)
            self._discover()  # its node may be gone: then its slot is no loss
        if worker.facts is not None and not isinstance(error, RayTaskError):
            self._died[worker.number] = worker.facts
        lost = worker.facts is not None and _deaths.is_lost(worker.facts.node_id)
        self._starter.left(worker, reason=how_it_ended(error, lost), stderr=_traceback(error))

    def freed(self, worker: _Worker) -> None:
        self._nodes.touch(worker.host)
        _kill(worker.actor)

    def _tell_waits(self) -> None:
        """After 5 s, and then ever more seldom, say what the job waits for, if Ray has not provided it."""
        now = time.monotonic()
        text = self._lacks(now)
        if not text:
            self._waits, self._pause = False, _waiting.FIRST_WORD_S
        elif not self._waits:
            self._waits, self._word_at = True, now + _waiting.FIRST_WORD_S
        elif now >= self._word_at:
            self._news.put(("say", f"waiting for {text}. {_resources.there()}"))
            self._pause = min(2 * self._pause, _waiting.MOST_BETWEEN_WORDS_S)
            self._word_at = now + self._pause

    def _lacks(self, now: float) -> str:
        if self._values:  # a function has returned, so the job ends
            return ""
        needs = f"which need {_resources.words(self._spec.per_worker)} each"
        workers = self._starter.workers
        late = [w for w in workers.values() if w.facts is None]
        if late:
            who = ", ".join(f"worker {w.number} on {w.host}" for w in late[:8])
            return f"{len(late)} of {len(workers)} workers to start ({who}), {needs}"
        least = self._spec.config["min"]
        if len(workers) < least:
            return f"room for {least} workers, {needs}"
        return ""


def how_it_ended(error: BaseException, lost: bool = False) -> str:
    """How a worker has ended, in words that continue "worker 3 …". ``lost``: its node is lost."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return _one_line(f"raised {type(cause).__name__}: {cause}")
    if isinstance(error, OutOfMemoryError):
        return _one_line(f"was killed by Ray because its node was short of memory: {_deaths.memory(error)}")
    if not isinstance(error, RayError):
        return _one_line(f"could not start: {error}")
    if lost:
        return "was lost with its node"
    if isinstance(error, ActorUnavailableError):
        return "cannot be reached: Ray has lost the connection to it"
    if "connection error code 2. End of file" in str(error):
        return "has died: it was killed, was out of memory, crashed, or called os._exit; Ray saw its connection end"
    return _one_line(f"has died: {_deaths.point(error)}")


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_TEXT else line[:_MOST_TEXT] + "…"


def _traceback(error: BaseException) -> str:
    return str(error)[-4000:] if isinstance(error, RayTaskError) else ""


def _kill(actor: Any) -> None:
    if actor is not None:
        ray.kill(actor)
