"""Sending a user's function to the workers, and finding the object in it that cannot be sent."""

from __future__ import annotations

from typing import Any

import ray
from ray import cloudpickle

from horovod.runner import _unpicklable


def put(value: Any, name: str) -> Any:
    """Put ``value`` where all workers can read it, once. Raises TypeError, which names the object that cannot be
    pickled.

    ``name`` is the name of the user's function.
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
    """A clause: which object of ``value`` Ray cannot pickle, and why. ``reason`` is the error for the whole."""
    return _unpicklable.culprit(value, reason, cloudpickle.dumps)
