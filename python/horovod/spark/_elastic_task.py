"""A task of an elastic job: a host with one slot, on which the driver starts workers."""

from __future__ import annotations

import contextlib
import pickle
import queue
import signal
import socket
import sys
import threading
from typing import Any, Iterator, Mapping, Optional

from horovod.runner._child import Child, Ending
from horovod.spark import _environment, _place, _rank
from horovod.spark._hub import LOST, Link

_TOLD_S = 5.0  # how long the driver may take to hear of a failure before Spark does


class WorkerFailed(RuntimeError):
    """The error of a task whose worker has failed. Spark may start the task again, here or elsewhere."""


def elastic(spec: Mapping[str, Any]) -> Iterator[bytes]:
    """A task of an elastic job. Yields nothing: results are messages like all others."""
    from pyspark import TaskContext

    _Task(spec, TaskContext.get()).run()
    yield from ()


class _Task:
    def __init__(self, spec: Mapping[str, Any], context: Any) -> None:
        self._spec = spec
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._gpus = _environment.gpus(context, spec["env"])
        self._hash = _place.host()
        # If a task's last attempt failed, Spark would end the whole job; so that attempt never fails.
        self._may_fail = context.attemptNumber() + 1 < spec["most_attempts"]
        self._child: Optional[Child] = None
        self._worker = -1
        self._ordered = False  # the driver has ordered the worker to end
        facts = {"partition": context.partitionId(), "attempt": context.taskAttemptId(), "host": socket.gethostname()}
        self._link = Link(spec["where"], lambda kind, fields: self._events.put((kind, fields)), facts)

    def run(self) -> None:
        """Obey the driver until it needs this task no more."""
        try:
            while True:
                kind, what = self._events.get()
                if kind == "start":
                    self._start(what["worker"], what["variables"])
                elif kind == "signal" and self._child is not None and what["worker"] == self._worker:
                    self._ordered = True
                    self._child.signal(what["signal"])
                elif kind == "ended":
                    self._tell(*what)
                elif kind in ("end", LOST):
                    return
        finally:
            if self._child is not None:
                self._child.close()
            self._link.close()

    def _start(self, worker: int, variables: Mapping[str, str]) -> None:
        gpus, devices = _environment.visible([self._gpus], 0)
        name = str(worker)
        child = Child(
            self._spec["executable"] or sys.executable,
            _environment.of_process(self._spec["env"]),
            lambda stream, data: self._link.send(stream, data, who=name),
        )
        every = {**variables, **gpus, "HOROVOD_SECRET_KEY": self._spec["key"], "HOROVOD_HOSTNAME": self._hash}
        pid = child.begin(_rank.work(self._spec["path"], every, devices, self._spec["work"]))
        self._child, self._worker, self._ordered = child, worker, False
        self._link.send("started", worker=worker, pid=pid)
        threading.Thread(target=lambda: self._events.put(("ended", (worker, *child.wait()))), daemon=True).start()

    def _tell(self, worker: int, ending: Ending, result: bytes) -> None:
        """Report how the worker has ended, and let Spark see a failure."""
        assert self._child is not None
        self._child.close()
        self._child = None
        kind, content = pickle.loads(result) if result else ("", b"")
        failed = ending != Ending(code=0) and not self._ordered
        self._link.send(
            "ended",
            content if kind == "value" else b"",
            worker=worker,
            code=ending.code,
            signal=ending.signal,
            error=ending.error,
            value=kind == "value",
            traceback=content if kind == "error" else "",
            leaves=failed,
        )
        if not failed:
            return
        self._await_word()
        how = f"exit code {ending.exit_code}" if ending.signal is None else signal.Signals(ending.signal).name
        if self._may_fail:
            raise WorkerFailed(f"worker {worker} of the job has ended: {how} {ending.error}".rstrip())
        self._events.put(("end", {}))

    def _await_word(self) -> None:
        """Wait until the driver has heard of the failure."""
        with contextlib.suppress(queue.Empty):
            while self._events.get(timeout=_TOLD_S)[0] not in ("left", "end", LOST):
                pass
