"""Dictionaries that rank 0 sends to the driver's callbacks while a function runs."""

from __future__ import annotations

import warnings
from typing import Any, Mapping, Optional

_queue: Optional[Any] = None
_warned = False


def configure(queue: Optional[Any]) -> None:
    """Make :func:`log` put its arguments into ``queue``, a ``ray.util.queue.Queue``. None ends that."""
    global _queue
    _queue = queue


def log(info_dict: Mapping[str, Any]) -> None:
    """Send ``info_dict`` to the callbacks of the driver. Other ranks than 0 may call it; then nothing is sent.

    If the driver has no callbacks, it warns once, and sends nothing.
    """
    global _warned
    if _queue is not None:
        _queue.put(info_dict)
    elif not _warned and not _is_quiet():
        _warned = True
        warnings.warn(
            "horovod.ray.ray_logger.log: nobody listens; give run() or execute() callbacks, in the driver", stacklevel=2
        )


def _is_quiet() -> bool:
    """Whether this is a rank above 0, whose dictionaries are not sent."""
    import os

    return os.environ.get("HOROVOD_RANK", "0") != "0"
