"""Sending a user's function to the workers; and which object it is that cannot be sent."""

from __future__ import annotations

import inspect
from typing import Any, Iterator, NamedTuple, Optional

import ray
from ray import cloudpickle

_DEEPEST = 10
_MOST_SHOWN = 200


def put(value: Any, name: str) -> Any:
    """Put ``value`` where all workers can read it, once. Raises TypeError, which names what cannot be pickled.

    ``name`` is that of the user's function.
    """
    try:
        return ray.put(value)
    except Exception as error:
        reason = _why_not(value)
        if reason is None:
            raise
        raise TypeError(
            f"{name} cannot be sent to the workers: {culprit(value, reason)}. Make it inside the function, on the "
            "worker, or pass what it is made from."
        ) from error


def culprit(value: Any, reason: Exception) -> str:
    """A clause: which object of ``value`` cannot be pickled, and why.

    Such as ``"'lock', to which train refers, is <unlocked …>, which cannot be pickled …"``.

    ``reason`` is why ``value`` cannot be pickled as a whole, or unpickled.
    """
    found = _innermost(_Named("it ", value), _DEEPEST)
    why = f"{type(reason).__name__}: {reason}"
    return f"{found.name}is {_shown(found.value)}, which cannot be pickled and unpickled ({why})"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


class _Named(NamedTuple):
    """An object, and which object of the user's it is: ``"'lock', to which train refers, "``."""

    name: str
    value: Any


def _why_not(value: Any) -> Optional[Exception]:
    """Why the value cannot be pickled; None if it can."""
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None


def _innermost(named: _Named, deep: int) -> _Named:
    """The first object below ``named`` that cannot be pickled, and has none below it that cannot."""
    if deep > 0:
        for part in _parts(named.value):
            if _why_not(part.value) is not None:
                return _innermost(part, deep - 1)
    return named


def _parts(value: Any) -> Iterator[_Named]:
    """What is pickled with ``value``."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield _Named(f"the item {key!r} of a dict ", part)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(value):
            yield _Named(f"item {index} of a {type(value).__name__} ", part)
    elif inspect.isfunction(value):
        there = inspect.getclosurevars(value)
        for name, part in {**there.globals, **there.nonlocals}.items():
            yield _Named(f"{name!r}, to which {value.__qualname__} refers, ", part)
    elif inspect.ismethod(value):
        yield _Named(f"the object of the method {value.__qualname__} ", value.__self__)
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            yield _Named(f"the attribute {name!r} of a {type(value).__name__} ", part)
        if hasattr(value, "func") and hasattr(value, "keywords"):  # functools.partial
            yield from (_Named("a part of a partial ", part) for part in (value.func, value.args, value.keywords))
