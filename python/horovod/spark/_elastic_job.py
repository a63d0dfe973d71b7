"""The driver's end of an elastic job: Spark's tasks are the hosts, and ``gorovod drive`` decides which take part."""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
from typing import Any, Mapping, Optional

from horovod.runner import _starter
from horovod.runner.common.util.timeout import TimeoutException
from horovod.spark import _cluster, _failure, _patience, _refusal, _spec
from horovod.spark._hub import LOST, Hub, Member
from horovod.spark._jobs import SparkJob
from horovod.spark._output import Output
from horovod.spark._saying import logger, say

_TICK_S = 0.25
_OVER = "spark"  # the message that Spark has ended the job, with its error or None
_SPARKS_END_S = 10.0  # for Spark to end a job that is cancelled
_TASKS_END_S = 10.0  # for tasks to end their workers: 5 s are between SIGTERM and SIGKILL
_LAST_TASKS_S = 2.0  # for tasks to end by themselves once the job is over
_DEFAULT_ATTEMPTS = 4  # Spark's spark.task.maxFailures


@dataclasses.dataclass
class Result:
    """The workers' results, by rank, or why the job has failed."""

    values: dict[int, bytes]
    error: str = ""


@dataclasses.dataclass
class _Worker(_starter.Worker):
    value: Optional[bytes] = None
    traceback: str = ""


class ElasticJob(_starter.Platform[_Worker]):
    """One job, from its start to its end.

    Args:
        session: of Spark.
        name: the name of the user's function.
        size: the number of tasks, which is the most workers.
        config: the settings of docs/drive.md, without version, key and address.
        job: the arguments of :func:`horovod.spark._spec.of_job`, without ``kind``, ``where`` and ``key``.
        output: for the workers' output.
        silent: do not print what the job waits for.
    """

    def __init__(
        self,
        session: Any,
        name: str,
        size: int,
        config: Mapping[str, Any],
        job: Mapping[str, Any],
        output: Output,
        silent: bool,
    ) -> None:
        self._context = session.sparkContext
        self._output = output
        self._silent = silent
        self._config = config
        self._hosts: dict[str, Member] = {}
        self._ended: dict[int, _Worker] = {}
        self._begun = False  # there have been as many tasks as the job needs to start
        self._starter = _starter.Starter(self, _Worker, logger)
        key = secrets.token_hex(32)
        self._patience = _patience.Patience(job["start_timeout"], self._awaited, silent)
        self._hub = Hub(_cluster.addresses(self._context), self._hear)
        self._starter.open(key, _cluster.address(self._context), config, job["env"])
        spec = _spec.of_job("elastic", where=self._hub.where, key=key, **job)
        spec["most_attempts"] = most_attempts(self._context)
        self._begin = lambda: SparkJob(session, "run_elastic", size, name, _spec.portable(spec), self._over)
        self._spark: Optional[SparkJob] = None
        self._size = size

    def run(self) -> Result:
        """Run the job, and return its result. An interrupt ends all workers."""
        try:
            self._spark = self._begin()
            return self._result(self._starter.attend(_TICK_S))
        finally:
            self._end()

    def _hear(self, member: Member, kind: str, fields: dict[str, Any], payload: bytes) -> None:
        if kind in ("stdout", "stderr"):
            self._output.write(fields["who"], kind, payload)
        else:
            self._starter.post(kind, member, fields, payload)

    def _over(self, rows: Any, error: Any) -> None:
        self._starter.post(_OVER, error)

    def look(self) -> None:
        self._begun = self._begun or len(self._hosts) >= self._config["np"]
        if not self._begun:
            self._patience.look()

    def start_worker(self, worker: _Worker, environment: Mapping[str, str]) -> None:
        member = self._hosts.get(worker.host)
        if member is None:
            raise _starter.NotStarted("Spark has ended the task")
        member.send("start", worker=worker.number, variables=environment)

    def end_worker(self, worker: _Worker, signum: int) -> None:
        if worker.host in self._hosts:
            self._hosts[worker.host].send("signal", worker=worker.number, signal=signum)

    def freed(self, worker: _Worker) -> None:
        self._ended[worker.number] = worker

    def say(self, text: str) -> None:
        if not self._silent:
            say(text)

    def take(self, kind: str, *what: Any) -> None:
        if kind == _OVER:
            raise self._sparks_end(*what)
        self._heard(kind, *what)

    def _heard(self, kind: str, member: Member, fields: dict[str, Any], payload: bytes) -> None:
        """Handle a task's message."""
        if kind == "here":
            member.name = f"{member.facts['host']}/task-{member.facts['attempt']}"
            self._hosts[member.name] = member
            self._offer()
        elif kind == "started":
            self._starter.started(self._starter.workers[fields["worker"]], fields["pid"])
        elif kind == "ended":
            self._worker_ended(member, fields, payload)
        elif kind == LOST and self._hosts.pop(member.name, None) is not None:
            self._offer()
            for worker in [w for w in self._starter.workers.values() if w.host == member.name]:
                self._starter.left(worker, reason="is gone: Spark has ended its task, or its executor has died")

    def _worker_ended(self, member: Member, fields: dict[str, Any], payload: bytes) -> None:
        worker = self._starter.workers[fields["worker"]]
        worker.value = payload if fields["value"] else None
        worker.traceback = fields["traceback"]
        how: dict[str, Any] = {}
        if fields["error"]:
            how["reason"] = f"could not run: {fields['error']}"
        elif fields["signal"] is not None:
            how["signum"] = fields["signal"]
        elif fields["code"] != 0:
            how["code"] = fields["code"]
        if how:
            how["stderr"] = self._output.last_of(str(worker.number))
        if fields["leaves"]:
            del self._hosts[member.name]  # Spark makes another attempt, which counts as another host
        self._starter.left(worker, **how)
        if fields["leaves"]:
            self._offer()
            member.send("left")

    def _offer(self) -> None:
        self._starter.offer(dict.fromkeys(self._hosts, 1))

    def _result(self, outcome: _starter.Outcome) -> Result:
        """The result of the job."""
        if outcome.finished:
            done = {number: worker.value for number, worker in self._ended.items() if worker.value is not None}
            return Result(outcome.by_rank(done))
        if outcome.never_formed:
            raise TimeoutException(
                f"Timed out waiting for tasks of Spark: {outcome.text}. {_cluster.in_words(self._context)}"
            )
        failure = outcome.failure
        if failure is None:
            return Result({}, f"{_failure.FAILED} {outcome.text}")
        text = f"{_failure.FAILED} The first process to do so was:\nProcess name: "
        text += f"rank {failure.rank}, {failure.text}" + (f" ({outcome.text})" if outcome.text else "")
        raised = self._ended.get(failure.worker)
        if raised is not None and raised.traceback:
            text += f"\nIt raised:\n{raised.traceback.rstrip()}"
        elif failure.stderr:
            text += f"\nThe last lines of its stderr:\n{failure.stderr}"
        return Result({}, text)

    def _sparks_end(self, error: Optional[Exception]) -> Exception:
        """The error for the case that Spark ended the job before its outcome."""
        if error is None:
            return RuntimeError("Spark has ended all tasks of the elastic job: all their attempts have failed")
        return _refusal.of(error, self._size)

    def _end(self) -> None:
        """End the rest: workers, tasks, Spark's job and the driver."""
        try:
            for member in list(self._hosts.values()):
                member.send("end")
            if self._spark is not None:
                self._spark.wait(_LAST_TASKS_S if len(self._hosts) == self._size else 0)
                self._spark.end(_SPARKS_END_S)
            self._await_tasks()
        finally:
            self._hub.close()
            self._starter.close()
            self._output.finish()

    def _await_tasks(self) -> None:
        """Wait, for a limited time, until all tasks have ended their workers."""
        limit = time.monotonic() + _TASKS_END_S
        members = set(self._hosts.values())
        while members and time.monotonic() < limit:
            kind, *what = self._starter.posted(_TICK_S) or ("",)
            if kind == "here":
                members.add(what[0])
                what[0].send("end")
            elif kind == LOST:
                members.discard(what[0])

    def _awaited(self) -> str:
        least = self._config["np"]
        return f"{least - len(self._hosts)} of {least} tasks to start. {_cluster.in_words(self._context)}"


def most_attempts(context: Any) -> int:
    """How often Spark starts a task before it fails the job."""
    local = re.fullmatch(r"local(?:\[[^,\]]*(?:,\s*(\d+))?\])?", context.master)
    if local:
        return int(local[1] or 1)
    return int(context.getConf().get("spark.task.maxFailures", str(_DEFAULT_ATTEMPTS)))
