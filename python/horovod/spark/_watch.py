"""Watching the ranks of a job of a fixed size: in the driver or, over Spark Connect, in the task of partition 0."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import time
from typing import Any, Optional, Sequence

from horovod.spark._failure import Failure
from horovod.spark._hub import LOST, Hub, Member
from horovod.spark._output import Kept, Output

# Seconds in which the other ranks see an error and clean up.
GRACE_S = 5.0


@dataclasses.dataclass
class Task:
    """One task, according to its messages."""

    member: Member
    rank: int = -1
    pid: int = 0
    ended: bool = False

    @property
    def attempt(self) -> int:
        """Spark's id of the task's attempt."""
        return int(self.member.facts["attempt"])

    def failure(self, code: Optional[int], why: str = "", traceback: str = "") -> Failure:
        """Its failure."""
        return Failure(self.rank, self.member.facts["host"], self.attempt, self.pid, code, why, traceback)


class Watch:
    """Handles the tasks' messages.

    Args:
        size: of the job.
        addresses: where tasks reach this process.
        output: for the ranks' output; None: it is kept.

    Attributes:
        tasks: by member.
        failures: in the order in which they became known.
        begun: whether a rank's function may have begun.
    """

    def __init__(self, size: int, addresses: Sequence[str], output: Optional[Output] = None) -> None:
        self.size = size
        self.output = Kept() if output is None else output
        self.tasks: dict[Member, Task] = {}
        self.failures: list[Failure] = []
        self.begun = False
        self.events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.hub = Hub(addresses, self._hear)
        self._failed_at = 0.0

    def _hear(self, member: Member, kind: str, fields: dict[str, Any], payload: bytes) -> None:
        if kind in ("stdout", "stderr"):
            self.output.write(member.name, kind, payload)  # on the member's own thread, which waits for a slow reader
            return
        if kind == "rank":
            member.name = str(fields["rank"])
        self.events.put((kind, member, fields))

    def take(self, kind: str, member: Member, fields: dict[str, Any]) -> None:
        """Handle one event."""
        if kind == "here":
            self._joins(member)
        elif member not in self.tasks:
            return
        elif kind == "rank":
            self.tasks[member].rank = fields["rank"]
        elif kind == "started":
            self.begun = True
            self.tasks[member].pid = fields["pid"]
        elif kind == "ended":
            self.tasks[member].ended = True
            if not fields["value"]:
                self._fails(self.tasks[member].failure(fields["code"], fields["why"], fields["traceback"]))
        elif kind == LOST:
            task = self.tasks[member]
            if not self.begun:
                del self.tasks[member]
            elif not task.ended:
                task.ended = True
                self._fails(task.failure(None))

    def _joins(self, member: Member) -> None:
        partition = member.facts["partition"]
        earlier = [m for m in self.tasks if m.facts["partition"] == partition]
        if self.begun and earlier:
            member.send("end")  # Spark repeats the stage, but a function must not run twice
            return
        for gone in earlier:
            del self.tasks[gone]
        self.tasks[member] = Task(member)

    def _fails(self, failure: Failure) -> None:
        if not self.failures:
            self._failed_at = time.monotonic()
        self.failures.append(failure)

    @property
    def over(self) -> bool:
        """Whether all ranks have ended."""
        return len(self.tasks) == self.size and all(task.ended for task in self.tasks.values())

    @property
    def hopeless(self) -> bool:
        """Whether a rank has failed, and the others have had their time."""
        return bool(self.failures) and (self.over or time.monotonic() - self._failed_at > GRACE_S)

    def end(self) -> None:
        """Make all ranks end."""
        for task in list(self.tasks.values()):
            task.member.send("end")

    def wait(self) -> dict[str, Any]:
        """Watch until all ranks have ended. Returns failures and output, for the driver."""
        told = False
        while not self.over:
            try:
                self.take(*self.events.get(timeout=0.5))
            except queue.Empty:
                pass
            if self.hopeless and not told:
                told = True
                self.end()
        self.end()
        assert isinstance(self.output, Kept)
        return {"failures": [dataclasses.asdict(f) for f in self.failures], "output": self.output.pieces()}

    def await_end(self, seconds: float) -> None:
        """Make all ranks end, and wait until they have, at most for these seconds."""
        limit = time.monotonic() + seconds
        self.end()
        while not all(task.ended for task in self.tasks.values()) and time.monotonic() < limit:
            with contextlib.suppress(queue.Empty):
                kind, one, other = self.events.get(timeout=0.1)
                if isinstance(one, Member):
                    self.take(kind, one, other)
                if kind == "here":
                    one.send("end")

    def close(self) -> None:
        """End all connections."""
        self.hub.close()
