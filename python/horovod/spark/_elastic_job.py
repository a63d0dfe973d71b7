"""The driver's end of an elastic job: Spark's tasks are the hosts, and ``gorovod drive`` decides which take part."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import re
import secrets
import time
from typing import Any, Mapping, Optional

from horovod.runner._drive import Drive
from horovod.runner.common.util.timeout import TimeoutException
from horovod.spark import _cluster, _failure, _patience, _refusal, _spec
from horovod.spark._hub import LOST, Hub, Member
from horovod.spark._jobs import SparkJob
from horovod.spark._output import Output
from horovod.spark._saying import logger, say

_TICK_S = 0.25
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
class _Worker:
    number: int
    host: str
    pid: int = 0
    value: Optional[bytes] = None
    traceback: str = ""


class ElasticJob:
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
        self._events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._hosts: dict[str, Member] = {}
        self._workers: dict[int, _Worker] = {}  # the workers that run, or are being started
        self._ended: dict[int, _Worker] = {}
        self._key = secrets.token_hex(32)
        self._patience = _patience.Patience(job["start_timeout"], self._awaited, silent)
        self._hub = Hub(_cluster.addresses(self._context), self._hear)
        self._drive = Drive(lambda event: self._events.put(("drive", event)), job["env"])
        spec = _spec.of_job("elastic", where=self._hub.where, key=self._key, **job)
        spec["most_attempts"] = most_attempts(self._context)
        self._begin = lambda: SparkJob(session, "run_elastic", size, name, _spec.portable(spec), self._over)
        self._spark: Optional[SparkJob] = None
        self._size = size

    def run(self) -> Result:
        """Run the job, and return its result. An interrupt ends all workers."""
        try:
            self._spark = self._begin()
            self._request(
                "config",
                version=1,
                key=self._key,
                address=_cluster.address(self._context),
                **self._config,
            )
            return self._attend()
        finally:
            self._end()

    def _hear(self, member: Member, kind: str, fields: dict[str, Any], payload: bytes) -> None:
        if kind in ("stdout", "stderr"):
            self._output.write(fields["who"], kind, payload)
        else:
            self._events.put((kind, member, fields, payload))

    def _over(self, rows: Any, error: Any) -> None:
        self._events.put(("spark", error))

    def _request(self, kind: str, **fields: Any) -> None:
        logger.debug("to the driver: %s", kind)
        self._drive.request(kind, **fields)

    def _attend(self) -> Result:
        """Handle events until the driver reports the outcome."""
        begun = False
        while True:
            with contextlib.suppress(queue.Empty):
                kind, *what = self._events.get(timeout=None if begun else _TICK_S)
                if kind == "drive":
                    event = what[0]
                    if event is None:
                        raise RuntimeError(f"the driver of the elastic job has ended: {self._drive.close()}")
                    if event["type"] == "outcome":
                        return self._result(event)
                    self._obey(event)
                elif kind == "spark":
                    raise self._sparks_end(what[0])
                else:
                    self._take(kind, *what)
            begun = begun or len(self._hosts) >= self._config["np"]
            if not begun:
                self._patience.look()

    def _obey(self, event: Mapping[str, Any]) -> None:
        """Carry out the driver's event."""
        if event["type"] == "start":
            worker = _Worker(event["worker"], event["host"])
            self._workers[worker.number] = worker
            member = self._hosts.get(worker.host)
            if member is None:
                self._leaves(worker, reason="could not start: Spark has ended the task")
            else:
                member.send("start", worker=worker.number, variables=event["environment"])
        elif event["type"] == "signal":
            running = self._workers.get(event["worker"])
            if running is not None and running.host in self._hosts:
                self._hosts[running.host].send("signal", worker=running.number, signal=event["signal"])
        elif event["type"] == "say" and not self._silent:
            say(event["text"])

    def _take(self, kind: str, member: Member, fields: dict[str, Any], payload: bytes) -> None:
        """Handle a task's message."""
        if kind == "here":
            member.name = f"{member.facts['host']}/task-{member.facts['attempt']}"
            self._hosts[member.name] = member
            self._offer()
        elif kind == "started":
            self._workers[fields["worker"]].pid = fields["pid"]
            self._request("started", worker=fields["worker"], pid=fields["pid"])
        elif kind == "ended":
            self._worker_ended(member, fields, payload)
        elif kind == LOST and self._hosts.pop(member.name, None) is not None:
            self._offer()
            for worker in [w for w in self._workers.values() if w.host == member.name]:
                self._leaves(worker, reason="is gone: Spark has ended its task, or its executor has died")

    def _worker_ended(self, member: Member, fields: dict[str, Any], payload: bytes) -> None:
        worker = self._workers[fields["worker"]]
        worker.value = payload if fields["value"] else None
        worker.traceback = fields["traceback"]
        how: dict[str, Any] = {}
        if fields["error"]:
            how["reason"] = f"could not run: {fields['error']}"
        elif fields["signal"] is not None:
            how["signal"] = fields["signal"]
        elif fields["code"] != 0:
            how["code"] = fields["code"]
        if how:
            how["stderr"] = self._output.last_of(str(worker.number))
        if fields["leaves"]:
            del self._hosts[member.name]  # Spark makes another attempt, which counts as another host
        self._leaves(worker, **how)
        if fields["leaves"]:
            self._offer()
            member.send("left")

    def _leaves(self, worker: _Worker, **how: Any) -> None:
        """Tell the driver that a worker has ended, and that its slot is free."""
        del self._workers[worker.number]
        self._ended[worker.number] = worker
        self._request("ended", worker=worker.number, host=worker.host, pid=worker.pid, **how)
        self._request("gone", worker=worker.number)

    def _offer(self) -> None:
        self._request("hosts", hosts=[{"name": name, "slots": 1} for name in self._hosts])

    def _result(self, outcome: Mapping[str, Any]) -> Result:
        """The result of the job."""
        ranks = {int(worker): rank for worker, rank in outcome.get("ranks", {}).items()}
        done = {number: worker.value for number, worker in self._ended.items() if worker.value is not None}
        if not ranks:  # no function has called hvd.init()
            ranks = {number: number for number in done}
        failure, reason = outcome.get("failure"), outcome.get("text", "")
        if failure is None and not reason:
            return Result({rank: done[number] for number, rank in ranks.items() if number in done})
        if failure is None and not outcome.get("ranks"):
            raise TimeoutException(
                f"Timed out waiting for tasks of Spark: {reason}. {_cluster.in_words(self._context)}"
            )
        if failure is None:
            return Result({}, f"{_failure.FAILED} {reason}")
        text = f"{_failure.FAILED} The first process to do so was:\nProcess name: "
        text += f"rank {failure['rank']}, {failure['text']}" + (f" ({reason})" if reason else "")
        raised = self._ended.get(failure["worker"])
        if raised is not None and raised.traceback:
            text += f"\nIt raised:\n{raised.traceback.rstrip()}"
        elif failure.get("stderr"):
            text += f"\nThe last lines of its stderr:\n{failure['stderr']}"
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
            self._drive.close()
            self._output.finish()

    def _await_tasks(self) -> None:
        """Wait, for a limited time, until all tasks have ended their workers."""
        limit = time.monotonic() + _TASKS_END_S
        members = set(self._hosts.values())
        while members and time.monotonic() < limit:
            with contextlib.suppress(queue.Empty):
                kind, *what = self._events.get(timeout=_TICK_S)
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
