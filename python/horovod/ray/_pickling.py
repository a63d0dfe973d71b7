"""Sending a user's function to the workers; and which object it is that cannot be sent."""

from __future__ import annotations

from typing import Any

import ray
from ray import cloudpickle

from horovod.runner import _unpicklable


def put(value: Any, name: str) -> Any:
    """Put ``value`` where all workers can read it, once. Raises TypeError, which names what cannot be pickled.

    ``name`` is that of the user's function.
    """
    try:
        return ray.put(value)
    except Exception as error:
        reason = _unpicklable.why_not(value, cloudpickle.dumps)
        if reason is None:
            raise
        raise TypeError(
            f"{name} cannot be sent to the workers: {culprit(value, reason)}. Make it inside the function, on the "
            "worker, or pass what it is made from."
        ) from error


def culprit(value: Any, reason: Exception) -> str:
    """A clause: which object of ``value`` cannot be pickled, as Ray does it, and why. ``reason`` is why all cannot."""
    return _unpicklable.culprit(value, reason, cloudpickle.dumps)
