"""The last message of a rank that an exception ends: the cause, to all ranks; or that it is only a consequence."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Iterator, Optional, Type

from horovod.common import _lib, _patches
from horovod.common._headline import headline


def install() -> None:
    """Report uncaught exceptions from now on. For root causes, the earlier ``sys.excepthook`` still runs."""
    previous = sys.excepthook

    def hook(kind: Type[BaseException], value: BaseException, tb: Optional[TracebackType]) -> None:
        if hasattr(sys, "ps1") or sys.flags.interactive or _lib.forked:
            previous(kind, value, tb)  # the program goes on
            return
        failure = _cause(value)
        if failure:
            print(_consequence(kind, tb, failure), file=sys.stderr, flush=True)
            return
        previous(kind, value, tb)
        sys.stderr.flush()  # before the other ranks can print their consequences
        _tell(value)

    _patches.replace("excepthook", sys, "excepthook", hook)


def tell(value: BaseException) -> None:
    """Tell all ranks which exception ends this one, as for an uncaught exception."""
    if not _cause(value):
        _tell(value)


def _tell(value: BaseException) -> None:
    _lib.load().gorovod_fail(f"raised {headline(value)}".encode("utf-8", "replace").replace(b"\0", b" "))


def _cause(value: BaseException) -> str:
    """The failure of another rank that caused the exception; empty if there is none."""
    of_job = failure()
    return of_job if of_job and any(of_job in str(e) for e in _chain(value)) else ""


def failure() -> str:
    """The failure that has ended the operations of this process; empty if there is none."""
    return (_lib.load().gorovod_failure() or b"").decode("utf-8", "replace")


def _chain(value: Optional[BaseException]) -> Iterator[BaseException]:
    """The exception, and the exceptions that caused it."""
    seen = set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        yield value
        value = value.__cause__ or value.__context__


def _consequence(kind: Type[BaseException], tb: Optional[TracebackType], failure: str) -> str:
    """One line in place of a traceback: where this rank was when another rank's failure ended it."""
    frames = traceback.extract_tb(tb)
    own = [f for f in frames if "/horovod/" not in f.filename.replace("\\", "/")] or frames
    where = f" at {own[-1].filename}:{own[-1].lineno} in {own[-1].name}" if own else ""
    return f"{kind.__name__}{where}, because of another failure: {failure}"
