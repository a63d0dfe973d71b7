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
    """Call a function in a thread.

    Args:
        target: the function.
        args: its arguments, a tuple.
        name: the thread's name.
        daemon: whether the process may end while the thread runs.
        silent: drop an exception; otherwise it goes to stderr.

    Returns:
        The thread, started.

    Raises:
        ValueError: ``args`` is not a tuple.

    Example:
        >>> from horovod.runner.util.threads import in_thread
        >>> in_thread(print, ("hello",)).join()
        hello
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {args!r}: for a single argument use (arg,)")

    def call() -> None:
        with contextlib.suppress(Exception) if silent else contextlib.nullcontext():
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread
