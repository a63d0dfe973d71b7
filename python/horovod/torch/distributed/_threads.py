"""The threads of this package. They are daemons, so a program may end without asking them, but not in their midst:

one that is in PyTorch's C++ and wants to return to Python when the interpreter has ended is ended there, which aborts
the process. So they are waited for at exit, when the engine has been shut down, which ends what they wait for.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

_running = 0
_ended = threading.Condition()  # guards the count


def start(name: str, run: Callable[..., None], *arguments: Any) -> None:
    """Start a thread."""

    def follow() -> None:
        global _running
        try:
            run(*arguments)
        finally:
            with _ended:
                _running -= 1
                _ended.notify_all()

    global _running
    with _ended:
        _running += 1
    threading.Thread(target=follow, name=f"gorovod {name}", daemon=True).start()


def join(seconds: float) -> None:
    """Wait until none of them runs, at most that long."""
    with _ended:
        _ended.wait_for(lambda: _running == 0, seconds)
