"""The threads of this package. They are daemons, so a program may end without asking them.

But a thread must not be cut off in PyTorch's C++: if it returned to Python after the interpreter has ended, it would be
ended there, which aborts the process. So the program waits for the threads at exit, after the engine's shutdown, which
ends their own waits.
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
    """Wait, at most this long, until none of them runs."""
    with _ended:
        _ended.wait_for(lambda: _running == 0, seconds)
