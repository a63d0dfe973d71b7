"""Checks of arguments that front ends share. They fail in the call that has the argument, not when a graph runs.

Each check takes an argument, and returns it in the form that the caller uses.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, Collection, Iterable, Optional

from horovod.common import _facts, _lib
from horovod.common.process_sets import ProcessSet


def name(value: Any) -> Optional[str]:
    """The name of an operation, or None. TypeError unless it is a str, ValueError if C cannot have such a name."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"name must be a str, not {value!r}")
    if value is not None and "\0" in value:
        raise ValueError(f"name {value!r} contains a NUL character")
    if value is not None and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"name {value!r} contains {value[error.start]!r}, half of a surrogate pair, which UTF-8 cannot encode: "
                'replace it, with name.encode(errors="replace").decode() for example'
            ) from None
    return value


def number(value: Any, what: str) -> float:
    """A number to scale by. TypeError unless it is a number; ``what`` is the argument's name."""
    if not isinstance(value, (str, bytes)):
        try:
            return float(value)
        except TypeError:
            pass
    raise TypeError(f"{what} must be a number, not {value!r}")


def predivide_factor(value: Any) -> float:
    """A ``gradient_predivide_factor``. TypeError or ValueError unless one can divide and multiply by it."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"gradient_predivide_factor must be a number, not {value!r}")
    if value == 0 or not math.isfinite(value):
        raise ValueError(f"gradient_predivide_factor must be finite and not 0, not {value!r}")
    return float(value)


def passes(value: Any) -> int:
    """A number of backward passes. TypeError unless it is an int, ValueError unless it is above 0."""
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"backward_passes_per_step must be an int, not {value!r}")
    if value <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    return int(value)


def root_rank(value: Any) -> int:
    """A rank of the world to broadcast from. TypeError unless it is an integer; the engine checks the rest."""
    return _lib.int32(value, "root_rank")


def reduce_op(value: Any, known: Collection[int], names: str) -> int:
    """One of ``known``, which ``names`` lists for the user. ValueError if it is none of them."""
    if not isinstance(value, numbers.Integral) or value not in known:
        for name, number in _facts.reduce_ops().items():
            if isinstance(value, numbers.Integral) and value == number:
                raise ValueError(f"reduce operation {name.capitalize()} is not possible here; use {names}.")
        raise ValueError(f"unknown reduce operation {value!r}; use {names}.")
    return int(value)


def compressor(value: Any) -> Any:
    """A class or object that compresses and decompresses. TypeError if it does not."""
    for method in ("compress", "decompress"):
        if not callable(getattr(value, method, None)):
            raise TypeError(f"compression must be one of hvd.Compression, or another Compressor, not {value!r}")
    return value


def process_set(value: Any) -> ProcessSet:
    """A process set, which may not be initialised yet. TypeError for anything else, such as a set's number."""
    if not isinstance(value, ProcessSet):
        raise TypeError(f"process_set must be a ProcessSet, not {value!r}")
    return value


def process_set_id(value: Any) -> int:
    """The number of a process set. TypeError if it is no process set, ValueError if the set does not exist now."""
    number = process_set(value).process_set_id
    if number is None:
        raise ValueError(f"{value} is not initialized; pass it to hvd.init() or to hvd.add_process_set().")
    if number != 0:
        value.size()  # raises ValueError if the engine has no such set
    return number


def tensors(value: Iterable[Any]) -> list[Any]:
    """The tensors of a group. TypeError for a single tensor, ValueError for None among them."""
    if hasattr(value, "dtype") or isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise TypeError(f"tensors must be a list of tensors, not {value!r}")
    given = list(value)
    for i, tensor in enumerate(given):
        if tensor is None:
            raise ValueError(f"tensor {i} of a group of {len(given)} is None; leave it out on all ranks")
    return given
