"""Functions in threads of their own."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Optional, Sequence


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Call ``target(*args)`` in a thread, which is returned. With ``silent`` nobody is told of an exception.

    A daemon does not keep the process alive. ``args`` is a tuple; ValueError for what is none.
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {args!r}: for a single argument use (arg,)")

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
