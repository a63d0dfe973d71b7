"""How a job has failed, in words."""

from __future__ import annotations

import dataclasses
import signal
import textwrap
from typing import Optional, Sequence

FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated."
)
_CONSEQUENCE = "HorovodInternalError"  # what victims raise: another rank's error is the cause


@dataclasses.dataclass
class Failure:
    """The end of one rank.

    Attributes:
        rank: which.
        host: the name of its host.
        attempt: the id of the task's attempt at Spark.
        pid: of its process, 0 if it has none.
        code: the exit code, that of a signal below 0; None: its task is gone.
        why: what else is known, such as why it could not start.
        traceback: of what the function has raised.
        executor: what Spark calls the executor, once that is known.
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
    """The failure from which the others follow: the first that is not one of a rank that another one's has ended."""
    return min(failures, key=lambda failure: _CONSEQUENCE in failure.traceback)


def error(failures: Sequence[Failure], stderr: str, spark_says: str = "") -> RuntimeError:
    """What to raise. ``stderr`` are the last lines of the cause's."""
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
