"""The starter's side of an elastic job, for every platform that starts processes: Ray's actors, Spark's tasks.

The program ``gorovod drive`` decides who takes part, and starts nothing. A :class:`Starter` keeps the conversation with
it, in the lines of docs/drive.md; a :class:`Platform` starts and ends the processes:

    gorovod drive ──── start, signal, say, outcome ────▶ Starter ── start_worker, end_worker, freed, say ─▶ Platform
                  ◀── config, hosts, started, ended, gone ──     ◀────── offer, started, left, post ───────

A worker's life, as the starter sees it:

    start ──▶ in workers ── started(pid) ──▶ runs ── left(how) ──▶ ended, freed, gone: not in workers
                   └── NotStarted ───────────────────────▲

What holds: the program hears ``ended`` and then ``gone`` once of each worker that has left. :meth:`Starter.attend`
returns the program's outcome; if the program ends without one, :meth:`Starter.attend` raises an error that has its
stderr, or else how it has ended.
"""

from __future__ import annotations

import abc
import dataclasses
import logging
import queue
from typing import Any, Callable, Generic, Mapping, Optional, TypeVar, Union

from horovod.runner._drive import Drive

_VERSION = 1  # of the lines


@dataclasses.dataclass
class Worker:
    """A worker that runs or is being started. Platforms add what they know of it.

    Attributes:
        number: what the driver calls it; no other worker of the job ever has this number.
        host: the name of its host, one of those offered.
        slot: a number below the host's slots that no other living worker of the host has.
        pid: of its process; 0 before it runs.
    """

    number: int
    host: str
    slot: int
    pid: int = 0


W = TypeVar("W", bound=Worker)
T = TypeVar("T")


class NotStarted(Exception):
    """A platform cannot start a worker. The text is the reason."""


class Platform(abc.ABC, Generic[W]):
    """What starts and ends the processes of a job. :meth:`Starter.attend` calls all methods, on its thread."""

    @abc.abstractmethod
    def start_worker(self, worker: W, environment: Mapping[str, str]) -> None:
        """Start the worker's process, with these variables and the job's key, or raise :class:`NotStarted`.

        Does not wait for the process: :meth:`Starter.started` or :meth:`Starter.left` tells of it later.
        """

    @abc.abstractmethod
    def end_worker(self, worker: W, signum: int) -> None:
        """End (15) or kill (9) the worker's process and all that this has started. Does not wait for their end."""

    def freed(self, worker: W) -> None:
        """Take back what the worker used: it has left. Afterwards its slot may have another worker."""

    @abc.abstractmethod
    def say(self, text: str) -> None:
        """Tell the user."""

    @abc.abstractmethod
    def take(self, kind: str, *what: Any) -> None:
        """Handle a message of :meth:`Starter.post`."""

    def look(self) -> None:
        """Do what is due. It runs after each message, and at least once a tick."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """The end of a worker that counts as the job's failure. The fields are those of docs/drive.md."""

    worker: int
    rank: int
    text: str
    host: str = ""
    pid: int = 0
    reported: str = ""
    stderr: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a job has ended.

    Attributes:
        text: why the job was stopped; empty if it has finished or only ``failure`` says so.
        failure: the failure that counts, if any.
        ranks: the ranks of the last world, by worker; empty if no worker has called ``hvd.init()``.
    """

    text: str = ""
    failure: Optional[Failure] = None
    ranks: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """The job has done its work."""
        return self.failure is None and not self.text

    @property
    def never_formed(self) -> bool:
        """The job was stopped before it had a world, and by no worker's failure: it lacked slots or workers."""
        return self.failure is None and bool(self.text) and not self.ranks

    def by_rank(self, values: Mapping[int, T]) -> dict[int, T]:
        """Workers' values by rank, in that order. Workers' numbers are their ranks if there was no world."""
        ranks = self.ranks or {worker: worker for worker in values}
        workers = {rank: worker for worker, rank in ranks.items() if worker in values}
        return {rank: values[workers[rank]] for rank in sorted(workers)}


class Starter(Generic[W]):
    """One job's conversation with its driver. :meth:`post` may be called on any thread, the others on one.

    Args:
        platform: starts and ends the processes.
        worker: makes the platform's :class:`Worker`, of number, host and slot.
        logger: notes the requests, at level DEBUG.

    Attributes:
        workers: the workers that run or are being started, by number.
    """

    def __init__(self, platform: Platform[W], worker: Callable[[int, str, int], W], logger: logging.Logger) -> None:
        self.workers: dict[int, W] = {}
        self._platform = platform
        self._worker = worker
        self._logger = logger
        self._hosts: Optional[Mapping[str, int]] = None  # as the driver knows them
        # The program's events are dicts, its end is None, and the platform's messages are tuples.
        self._inbox: queue.SimpleQueue[Union[dict[str, Any], tuple[Any, ...], None]] = queue.SimpleQueue()
        self._drive: Optional[Drive] = None

    def open(self, key: str, address: str, config: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
        """Start the driver.

        Args:
            key: the job's secret, at least 32 hexadecimal digits.
            address: this host's, as the workers see it.
            config: the other fields of docs/drive.md's ``config``, without its version.
            variables: of the workers' environment. Those by which a job is shown or reported are the driver's, too,
                and count more than this process's.

        Raises:
            RuntimeError: the program ``gorovod`` is missing.
        """
        self._drive = Drive(self._inbox.put, variables)
        self._request("config", version=_VERSION, key=key, address=address, **config)

    def post(self, kind: str, *what: Any) -> None:
        """Have :meth:`attend` hand a message to the platform."""
        self._inbox.put((kind, *what))

    def attend(self, tick_s: float) -> Outcome:
        """Handle events and messages, in the order in which they come, until the driver reports the outcome.

        Raises:
            RuntimeError: the driver has ended without an outcome.
            Exception: an exception of the platform's.
        """
        while True:
            try:
                news = self._inbox.get(timeout=tick_s)
            except queue.Empty:
                pass
            else:
                if isinstance(news, tuple):
                    self._platform.take(*news)
                elif news is None:
                    raise RuntimeError(f"the driver of the elastic job has ended: {self.close()}")
                elif news["type"] == "outcome":
                    return _outcome(news)
                else:
                    self._obey(news)
            self._platform.look()

    def offer(self, hosts: Mapping[str, int]) -> None:
        """Tell which hosts exist now, with how many slots."""
        if hosts != self._hosts:
            self._hosts = dict(hosts)
            self._request("hosts", hosts=[{"name": name, "slots": n} for name, n in hosts.items() if n > 0])

    def started(self, worker: W, pid: int) -> None:
        """Tell that a worker's process runs."""
        worker.pid = pid
        self._request("started", worker=worker.number, pid=pid)

    def left(self, worker: W, reason: str = "", code: int = 0, signum: int = 0, stderr: str = "") -> None:
        """Tell that nothing is left of a worker. It ended well, unless there is a reason, a code or a signal.

        Args:
            worker: one of :attr:`workers`.
            reason: continues the sentence "worker 3 …".
            code: the exit code.
            signum: the signal that ended it.
            stderr: its last lines.
        """
        del self.workers[worker.number]
        how = {"reason": reason, "code": code, "signal": signum, "stderr": stderr}
        given = {name: value for name, value in how.items() if value}
        self._request("ended", worker=worker.number, host=worker.host, pid=worker.pid, **given)
        self._platform.freed(worker)
        self._request("gone", worker=worker.number)

    def posted(self, tick_s: float) -> Optional[tuple[Any, ...]]:
        """The next message of :meth:`post` once :meth:`attend` is over, or None. The driver's events are dropped."""
        try:
            news = self._inbox.get(timeout=tick_s)
        except queue.Empty:
            return None
        return news if isinstance(news, tuple) else None

    def close(self) -> str:
        """End the driver, and return what it wrote to stderr, or else how it has ended; nothing the second time."""
        return "" if self._drive is None else self._drive.close()

    def _request(self, kind: str, **fields: Any) -> None:
        self._logger.debug("to the driver: %s", kind)
        assert self._drive is not None
        self._drive.request(kind, **fields)

    def _obey(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "start":
            worker = self._worker(event["worker"], event["host"], event["slot"])
            self.workers[worker.number] = worker
            try:
                self._platform.start_worker(worker, event["environment"])
            except NotStarted as e:
                self.left(worker, reason=f"could not start: {e}")
        elif event["type"] == "signal":
            if event["worker"] in self.workers:  # else it has left meanwhile
                self._platform.end_worker(self.workers[event["worker"]], event["signal"])
        elif event["type"] == "say":
            self._platform.say(event["text"])
        else:
            self._logger.debug("%s", event["text"])


def _outcome(event: Mapping[str, Any]) -> Outcome:
    """The outcome in the program's last event."""
    failure = None
    if "failure" in event:
        told = event["failure"]
        failure = Failure(**{f.name: told[f.name] for f in dataclasses.fields(Failure) if f.name in told})
    ranks = {int(worker): rank for worker, rank in event.get("ranks", {}).items()}
    return Outcome(event.get("text", ""), failure, ranks)
