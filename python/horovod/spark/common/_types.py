"""Decides which types of Spark's columns become numbers for models."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
from pyspark.sql import types

_NUMBERS = (types.NumericType, types.BooleanType, VectorUDT, DenseVector, SparseVector)
_TEXT = (types.StringType, types.BinaryType)


def check(columns: Mapping[str, Any], texts: Iterable[str] = ()) -> None:
    """Raise ValueError if a column has no numbers.

    Args:
        columns: types by column: objects, or classes, which do not tell an array's elements.
        texts: columns that may have text.
    """
    for name, kind in columns.items():
        allowed = (*_NUMBERS, *_TEXT) if name in texts else _NUMBERS
        while isinstance(kind, types.ArrayType):
            kind = kind.elementType
        whole = kind if isinstance(kind, type) else type(kind)
        if whole is types.ArrayType or issubclass(whole, allowed):
            continue
        what = whole.__name__.removesuffix("Type").lower() if isinstance(kind, type) else kind.simpleString()
        raise ValueError(
            f"the column {name!r} has values of the type {what}, of which no tensor can be made: leave it out, or turn "
            "it into numbers, in the data frame or by transformation_fn"
        )
