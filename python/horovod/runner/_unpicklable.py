"""Finds the object in a user's function that cannot be pickled."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Iterator, NamedTuple, Optional

import cloudpickle

Dumps = Callable[[Any], Any]

_DEEPEST = 10
_MOST_SHOWN = 200


def culprit(value: Any, reason: Exception, dumps: Dumps = cloudpickle.dumps) -> str:
    """A clause: which object of ``value`` cannot be pickled, and why.

    Such as ``"'lock', to which train refers, is <unlocked …>, which cannot be pickled …"``.

    ``reason`` is why ``value`` cannot be pickled as a whole, or unpickled. ``dumps`` pickles.
    """
    found = _innermost(_Named("it ", value), dumps, _DEEPEST)
    why = f"{type(reason).__name__}: {reason}"
    return f"{found.name}is {_shown(found.value)}, which cannot be pickled and unpickled ({why})"


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


class _Named(NamedTuple):
    """An object, and its description for the user: ``"'lock', to which train refers, "``."""

    name: str
    value: Any


def why_not(value: Any, dumps: Dumps = cloudpickle.dumps) -> Optional[Exception]:
    """Why the value cannot be pickled; None if it can."""
    try:
        dumps(value)
    except Exception as error:
        return error
    return None


def _innermost(named: _Named, dumps: Dumps, deep: int) -> _Named:
    """The first object below ``named`` that cannot be pickled, and that contains no other such object."""
    if deep > 0:
        for part in _parts(named.value):
            if why_not(part.value, dumps) is not None:
                return _innermost(part, dumps, deep - 1)
    return named


def _parts(value: Any) -> Iterator[_Named]:
    """The objects that are pickled with ``value``."""
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
