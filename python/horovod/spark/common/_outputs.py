"""Adds a model's outputs to a data frame, as columns of the types of its labels."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.ml.linalg import DenseVector, SparseVector, VectorUDT
from pyspark.sql import types

from horovod.spark.common import _columns, _names

_ROWS, _BYTES = 1024, 16 << 20  # of the features that a model gets at once; Spark's batches have 10,000 rows
_WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
_SCALARS = (*_WHOLE, types.BooleanType, types.FloatType, types.DoubleType)


@dataclasses.dataclass(frozen=True)
class Column:
    """An output that becomes a column.

    Attributes:
        name: the column's name.
        label: the class of the label's type: one of Spark's types, DenseVector or SparseVector.
        size: how many numbers the output has for a row.
    """

    name: str
    label: type
    size: int

    def type(self) -> types.DataType:
        """The label's type, if the output is one number of a scalar label; otherwise the type of vectors."""
        if self.size != 1 or self.label in (DenseVector, SparseVector, types.ArrayType):
            return VectorUDT()
        return self.label() if self.label in _SCALARS else types.DoubleType()

    def values(self, output: np.ndarray) -> pa.Array:
        """The output's rows as the column's values: null if a whole number's type cannot hold one, such as NaN."""
        rows = np.asarray(output).reshape(len(output), -1)
        kind = self.type()
        if isinstance(kind, VectorUDT):
            rows = rows.astype(np.float64)
            return _columns.sparse_vectors(rows) if self.label is SparseVector else _columns.dense_vectors(rows)
        numbers = rows[:, 0]
        held = np.ones(len(numbers), np.bool_)
        if isinstance(kind, (*_WHOLE, types.BooleanType)) and numbers.dtype.kind == "f":
            numbers = np.rint(numbers)
            held = ~np.isnan(numbers)
        if isinstance(kind, _WHOLE):
            held &= _holds(np.iinfo(_NUMPY[type(kind)]), numbers)
        return pa.array(np.where(held, numbers, 0).astype(_NUMPY[type(kind)]), mask=~held)


_NUMPY = {
    types.ByteType: np.int8,
    types.ShortType: np.int16,
    types.IntegerType: np.int32,
    types.LongType: np.int64,
    types.BooleanType: np.bool_,
    types.FloatType: np.float32,
    types.DoubleType: np.float64,
}

Predict = Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]]


def add(dataset: Any, features: Sequence[str], columns: Sequence[Column], load: Callable[[], Predict]) -> Any:
    """Return the data frame with the outputs.

    Args:
        dataset: the data frame.
        features: the columns that the model takes.
        columns: the outputs' columns, in the model's order.
        load: makes, once in each task, the function from arrays by feature to an array for each output.
    """
    added = [column.name for column in columns]
    names = dataset.columns
    kept = [place for place, name in enumerate(names) if name not in added]
    fields = _names.numbered(dataset).schema.fields
    made = [types.StructField(f"output{place}", column.type(), True) for place, column in enumerate(columns)]
    schema = types.StructType([*(fields[place] for place in kept), *made])
    taken = [(name, names.index(name)) for name in features]

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        predict = None
        for batch in batches:
            for part in _parts(batch, [place for _, place in taken]):
                predict = predict or load()
                # Copies if the memory is Arrow's, because a model may work in place.
                inputs = {name: _columns.to_numpy(name, part.column(place)) for name, place in taken}
                outputs = predict({name: np.require(array, requirements="W") for name, array in inputs.items()})
                values = [column.values(output) for column, output in zip(columns, outputs)]
                yield pa.RecordBatch.from_arrays([*(part.column(place) for place in kept), *values], names=schema.names)

    return _names.numbered(dataset).mapInArrow(rows, schema).toDF(*(names[place] for place in kept), *added)


def _holds(kind: Any, numbers: np.ndarray) -> np.ndarray:
    """Where a type of whole numbers can hold the (whole) numbers. ``kind`` is the type's ``numpy.iinfo``."""
    if numbers.dtype.kind == "f":
        return (numbers >= float(kind.min)) & (numbers < float(kind.max) + 1)
    return (numbers >= kind.min) & (numbers <= kind.max)


def _parts(batch: Any, places: Sequence[int]) -> Iterator[Any]:
    """The batch in parts whose features take little memory, although vectors include zeros there."""
    size = sum(_columns.row_size(batch.column(place)) for place in places)
    most = max(1, min(_ROWS, int(_BYTES / max(size, 1))))
    for first in range(0, batch.num_rows, most):
        yield batch.slice(first, most)
