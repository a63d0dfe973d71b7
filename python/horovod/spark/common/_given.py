"""Checks of an estimator's parameters, before anything is done."""

from __future__ import annotations

import math
import numbers
import operator
import os
from typing import Any, Optional, Sequence

import numpy as np

_LONGEST = 128  # characters of a run's name, so that file names have room for it


def path(name: str, value: Any) -> str:
    """The path or URL as text. Raises TypeError or ValueError if there is none."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name}={value!r}: a path or URL is needed")
    text = os.fspath(value)
    if not text.strip():
        raise ValueError(f"{name}={text!r}: a path or URL is needed")
    return text


def index(value: Optional[int]) -> None:
    """Raise ValueError unless the index of a data set, if there is one, is a whole number from 0 on."""
    if value is not None and (not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0):
        raise ValueError(f"the index of a data set is {value!r}: a whole number from 0 on is needed, or None")


def run_id(name: str) -> None:
    """Raise ValueError unless the name can be that of a folder in any store."""
    if not isinstance(name, str):
        raise TypeError(f"run_id={name!r}: a name is needed")
    if not name.strip() or not name.isprintable() or {"/", "\\"} & set(name) or name in (".", ".."):
        raise ValueError(f"run_id={name!r}: it must be a name for one folder of the store")
    if len(name) > _LONGEST:
        raise ValueError(f"run_id={name[:20]!r}... has {len(name)} characters: at most {_LONGEST} are possible")


def seed(value: Optional[int]) -> None:
    """Raise ValueError unless all random generators accept the seed, if there is one."""
    if value is not None and not 0 <= value < 1 << 32:
        raise ValueError(f"random_seed={value}: a number from 0 to 2**32 - 1 is needed")


def weights(values: Optional[Sequence[float]]) -> None:
    """Raise ValueError unless the weights of losses, if there are any, are finite."""
    if not all(map(math.isfinite, values or ())):
        raise ValueError(f"loss_weights={values}: finite numbers are needed")


def shapes(name: str, values: Optional[Sequence[Any]], of: str, columns: Sequence[str]) -> None:
    """Raise ValueError unless there is a shape for each column: that of a row, or one with -1 for the rows of a batch.

    Args:
        name: the parameter.
        values: its value.
        of: the parameter that has the columns.
        columns: their names.
    """
    if values is None:
        return
    needed = (
        f"{name}={values}: a shape for each of {of} is needed, that of a row, such as [[28, 28]], or with -1 for the "
        "rows of a batch, [[-1, 28, 28]]"
    )
    for shape in values:
        if isinstance(shape, str) or not hasattr(shape, "__iter__"):
            raise ValueError(needed)
        try:
            lengths = [operator.index(length) for length in shape]
        except TypeError:
            raise ValueError(needed) from None
        if lengths.count(-1) > 1 or any(length < 1 for length in lengths if length != -1):
            raise ValueError(needed)
    if len(values) != len(columns):
        raise ValueError(f"{name} has {len(values)} shapes, but {of} has {len(columns)} columns")


def of_batch(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that :func:`shapes` accepts, with -1 for the rows of a batch."""
    return tuple(shape) if -1 in shape else (-1, *shape)


def edited(values: Optional[Sequence[Any]]) -> None:
    """Raise ValueError unless each of ``transformation_edit_fields`` is (name, type, shape, nullable)."""
    for field in values or ():
        try:
            name, kind, shape, *rest = field
            np.dtype(kind)
            tuple(operator.index(length) for length in shape or () if length is not None)
        except (TypeError, ValueError):
            name, rest = None, []
        if isinstance(field, str) or not isinstance(name, str) or len(rest) > 1:
            raise ValueError(
                f"transformation_edit_fields has {field!r}: (name, type of numpy, shape, nullable) is needed, such as "
                "('y', numpy.float32, (), False)"
            )


def functions(name: str, values: Sequence[Any]) -> None:
    """Raise ValueError unless all can be called."""
    for value in values:
        if not callable(value):
            raise ValueError(
                f"{name} has {value!r}, which cannot be called: functions of an output and a label are needed"
            )
