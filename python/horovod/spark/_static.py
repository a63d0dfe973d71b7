"""A job of a fixed size: the tasks of a barrier stage."""

from __future__ import annotations

import contextlib
import queue
from typing import Any, Callable, Mapping, Optional

from horovod.spark import _cluster, _failure, _patience, _refusal, _session, _spec
from horovod.spark._failure import Failure
from horovod.spark._jobs import SparkJob
from horovod.spark._output import Output
from horovod.spark._watch import Watch

_TICK_S = 0.25  # between looks at the time, while there is a limit
_SPARKS_END_S = 10.0  # for Spark to end a job that is cancelled
_RANKS_END_S = 10.0  # for the ranks to end: a task has 5 s from SIGTERM to SIGKILL


def run(session: Any, name: str, size: int, job: Mapping[str, Any], output: Output, silent: bool) -> list[bytes]:
    """Run a job of ``size`` processes, and return their results, pickled, by rank.

    Args:
        session: of Spark.
        name: the name of the user's function.
        size: how many processes there are.
        job: the arguments of :func:`horovod.spark._spec.of_job`, without ``kind`` and ``where``.
        output: for the ranks' output.
        silent: do not print what the job waits for.
    """
    if _session.is_connect(session):
        return _run_on_connect(session, name, size, job, output, silent)
    return _Driver(session, name, size, job, output, silent).run()


class _Driver:
    """The driver, if there is a SparkContext: the tasks talk to it."""

    def __init__(
        self, session: Any, name: str, size: int, job: Mapping[str, Any], output: Output, silent: bool
    ) -> None:
        self._session = session
        self._context = session.sparkContext
        self._name = name
        self._size = size
        self._output = output
        self._watch = Watch(size, _cluster.addresses(self._context), output)
        self._task = _spec.portable(_spec.of_job("static", where=self._watch.hub.where, **job))
        self._patience = _patience.Patience(job["start_timeout"], self._awaited, silent)
        self._job: Optional[SparkJob] = None

    def run(self) -> list[bytes]:
        """Run the job, and watch it to its end."""
        try:
            self._job = SparkJob(self._session, "run", self._size, self._name, self._task, self._ended)
            return _values(self._await_rows(), self._size, self._executors)
        except BaseException:
            self._end()
            raise
        finally:
            self._watch.close()
            self._output.finish()

    def _end(self) -> None:
        """End all ranks, so that none holds a GPU or a port when the caller hears of the end."""
        self._watch.end()
        if self._job is not None:
            self._job.end(_SPARKS_END_S)
        self._watch.await_end(_RANKS_END_S)

    def _executors(self) -> Mapping[int, str]:
        return {} if self._job is None else _cluster.executor_of(self._context, self._job.group)

    def _ended(self, rows: Any, error: Any) -> None:
        self._watch.events.put(("spark", rows, error))

    def _await_rows(self) -> list[Any]:
        watch = self._watch
        while True:
            limited = not watch.begun or watch.failures
            with contextlib.suppress(queue.Empty):
                kind, one, other = watch.events.get(timeout=_TICK_S if limited else None)
                if kind == "spark":
                    return self._outcome(one, other)
                watch.take(kind, one, other)
            if watch.hopeless:
                self._end()
                raise self._error(watch.failures)
            if not watch.begun:
                self._patience.look()

    def _outcome(self, rows: Any, error: Optional[Exception]) -> list[Any]:
        """Spark's result, if no rank has failed."""
        with contextlib.suppress(queue.Empty):
            while True:
                kind, one, other = self._watch.events.get_nowait()
                self._watch.take(kind, one, other)
        refusal = None
        if error is not None:
            where = "" if self._job is None else _cluster.failed(self._context, self._job.group)
            refusal = _refusal.of(error, self._size, where)
        if self._watch.failures:
            raise self._error(self._watch.failures, str(refusal or ""))
        if refusal is not None:
            raise refusal from error
        return list(rows)

    def _error(self, failures: list[Failure], spark_says: str = "") -> RuntimeError:
        self._output.finish()
        names = self._executors()
        for failure in failures:
            failure.executor = names.get(failure.attempt, "")
        return _failure.error(failures, self._output.last_of(str(_failure.cause(failures).rank)), spark_says)

    def _awaited(self) -> str:
        """What the job waits for before it begins."""
        here = self._watch.tasks.values()
        if not here and self._job is not None and _cluster.running(self._context, self._job.group):
            return f"{self._size} tasks to start their Python: Spark runs them already"
        if not here:
            return f"{self._size} free slots at once. {_cluster.in_words(self._context)}"
        found = ", ".join(sorted({str(task.member.facts["host"]) for task in here}))
        missing = self._size - len(here)
        if not missing:
            return f"the processes of {self._size} tasks to start, on {found}"
        busy = _cluster.in_words(self._context)
        return f"{missing} of {self._size} tasks to start their Python; those on {found} have. {busy}"


def _run_on_connect(
    session: Any, name: str, size: int, job: Mapping[str, Any], output: Output, silent: bool
) -> list[bytes]:
    """Run it over Spark Connect. The tasks cannot talk to this process, so the task of partition 0 watches."""
    events: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    begun = _Begun(session)
    what = f"{size} tasks to start, all at once"
    patience = _patience.Patience(job["start_timeout"], lambda: what, silent)
    spec = _spec.of_job("static", where=None, **job)
    spark = SparkJob(session, "run", size, name, _spec.portable(spec), lambda *ended: events.put(ended))
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                rows, error = events.get(timeout=None if begun.tasks else _TICK_S)
                break
            if not begun.tasks:
                patience.look()
    finally:
        begun.close()
        spark.end(_SPARKS_END_S)
    if error is not None:
        raise _refusal.of(error, size) from error
    for row in rows:
        if row[0] == "watched":
            failures = [Failure(**fields) for fields in row[1]["failures"]]
            for who, stream, data in row[1]["output"]:
                output.write(who, stream, data)
            output.finish()
            if failures:
                raise _failure.error(failures, output.last_of(str(_failure.cause(failures).rank)))
    return _values(rows, size)


class _Begun:
    """Whether a session of Spark Connect has begun tasks, as far as it tells (Spark 4)."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.tasks = not hasattr(session, "registerProgressHandler")
        if not self.tasks:
            session.registerProgressHandler(self._heard)

    def _heard(self, stages: Any = None, inflight_tasks: int = 0, **_: Any) -> None:
        if inflight_tasks > 0:
            self.tasks = True

    def close(self) -> None:
        """Stop listening."""
        if hasattr(self._session, "removeProgressHandler"):
            with contextlib.suppress(Exception):
                self._session.removeProgressHandler(self._heard)


def _values(rows: list[Any], size: int, executors: Callable[[], Mapping[int, str]] = dict) -> list[bytes]:
    """The results by rank. ``executors`` are names by the ids of tasks' attempts."""
    values = {}
    for kind, *what in rows:
        if kind == "unfit":
            raise _refusal.of_unfit(what[0], executors())
        if kind == "value":
            values[what[0]] = what[1]
    if len(values) != size:
        raise RuntimeError(f"only ranks {sorted(values)} of {size} have returned a result")
    return [values[rank] for rank in range(size)]
