"""Sending a user's function to the workers."""

from __future__ import annotations

import io
from typing import Any

import ray


def put(value: Any, name: str) -> Any:
    """Put ``value`` where all workers can read it, once. Raises TypeError, which names what cannot be pickled."""
    try:
        return ray.put(value)
    except Exception as error:
        culprits = _culprits(value)
        if not culprits:
            raise
        raise TypeError(
            f"{name} cannot be sent to the workers, because {'; '.join(culprits)} cannot be pickled. Make it inside "
            "the function, on the worker, or pass what it is made from."
        ) from error


def _culprits(value: Any) -> list[str]:
    """The objects below ``value`` that keep it from being pickled, and what refers to each."""
    _, failures = ray.util.inspect_serializability(value, print_file=io.StringIO())
    return sorted(
        {f"{failure.name!r} ({failure.obj!r}, which {_name(failure.parent)} refers to)" for failure in failures}
    )


def _name(parent: Any) -> str:
    return getattr(parent, "__qualname__", None) or repr(parent)
