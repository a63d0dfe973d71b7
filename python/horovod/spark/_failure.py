"""How a job has failed, in words."""

from __future__ import annotations

import dataclasses
import signal
import textwrap
from typing import Optional, Sequence

FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated."
)
_CONSEQUENCE = "HorovodInternalError"  # the error of a rank that fails because of another rank's error


@dataclasses.dataclass
class Failure:
    """The end of one rank.

    Attributes:
        rank: the rank.
        host: the name of its host.
        attempt: the id of the task's attempt at Spark.
        pid: the process's id, 0 if there is none.
        code: the exit code; below 0, a signal's number; None: the task is gone.
        why: further information, such as why the process could not start.
        traceback: of the function's exception.
        executor: Spark's name of the executor, once known.
    """

    rank: int
    host: str
    attempt: int
    pid: int = 0
    code: Optional[int] = None
    why: str = ""
    traceback: str = ""
    executor: str = ""

    def __str__(self) -> str:
        where = f"on {self.host}" if not self.executor else f"in executor {self.executor} on {self.host}"
        return f"rank {self.rank} ({f'pid {self.pid} ' if self.pid else ''}{where})"

    @property
    def how(self) -> str:
        """The exit code, with what it means."""
        if self.code is None:
            return "none: Spark has ended its task, or its executor has died" + (f" ({self.why})" if self.why else "")
        if self.code < 0:
            try:
                name = signal.Signals(-self.code).name
            except ValueError:
                name = f"signal {-self.code}"
            return f"{self.code} (killed by {name})"
        return f"{self.code}" + (f" ({self.why})" if self.why else "")


def cause(failures: Sequence[Failure]) -> Failure:
    """The failure that caused the others: the first one of a rank that no other rank has ended."""
    return min(failures, key=lambda failure: _CONSEQUENCE in failure.traceback)


def error(failures: Sequence[Failure], stderr: str, spark_says: str = "") -> RuntimeError:
    """The error to raise. ``stderr`` are the last lines of the cause's stderr."""
    first = cause(failures)
    if first.code == 0:
        return RuntimeError(
            f"{first} has ended with code 0, but without a result: the function must return, not end the process "
            "(sys.exit, os._exit)"
        )
    text = f"{FAILED} The first process to do so was:\nProcess name: {first}\nExit code: {first.how}"
    if first.traceback:
        text += f"\nIt raised:\n{first.traceback.rstrip()}"
    elif stderr:
        text += "\nThe last lines of its stderr:\n" + textwrap.indent(stderr, "  ")
    if first.code is None and spark_says:
        text += f"\nSpark says: {spark_says}"
    return RuntimeError(text)
