"""The metadata of Parquet files that another program has written."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import types

from horovod.spark.common import _columns, _metadata, _parquet, _prepare, _row_groups

# The types as which Spark reads types that it lacks.
_SPARKS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
_SAMPLE = 1000  # rows whose shapes are examined; the reader checks the others


def part(path: str, storage_options: Mapping[str, Any], columns: Sequence[str]) -> _metadata.Part:
    """The metadata of a folder: from its file, or else from its first rows.

    Raises:
        ValueError: it has no rows, not these columns, or rows of different shapes.
    """
    folder = _parquet.Folder(path, storage_options, columns)
    if folder.part is not None:
        _check(path, folder, folder.part)
        return folder.part
    if not folder.rows:
        raise ValueError(f"{path} has no rows")
    first = next(group for group in folder.row_groups if group.rows)
    sample = next(folder.stream([_row_groups.Piece(first, 0, min(first.rows, _SAMPLE))]))
    described = {name: _described(name, sample.column(name)) for name in folder.columns}
    return _metadata.Part(
        files=[], rows=folder.rows, size=sum(group.size for group in folder.row_groups), columns=described
    )


def _check(path: str, folder: _parquet.Folder, part: _metadata.Part) -> None:
    """Raise ValueError unless the files agree with the metadata."""
    missing = [name for name in folder.columns if name not in part.columns]
    if folder.rows != part.rows or missing:
        what = f"has no column {missing[0]!r}" if missing else f"says {part.rows} rows, but there are {folder.rows}"
        raise ValueError(f"{path}: the description of the data {what}: prepare the data again")


def refuse_nulls(path: str, storage_options: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Raise ValueError if values of these columns are null, as far as the files' statistics tell.

    Files from ``prepare_data`` have none.
    """
    folder = _parquet.Folder(path, storage_options, columns)
    if folder.part is None:
        _columns.without_nulls(folder.nulls())


def _described(name: str, column: pa.ChunkedArray) -> dict[str, Any]:
    shape = _columns.shape(name, column)
    if _columns.is_vector(column.type):
        from pyspark.ml.linalg import VectorUDT

        return _prepare.describe(VectorUDT(), shape, _columns.only_sparse(column.combine_chunks()), None)
    try:
        return _prepare.describe(_spark_type(column.type), shape, False, None)
    except PySparkTypeError:
        raise ValueError(
            f"column {name!r} has values of the type {column.type}, which Spark does not know: write it as another one"
        ) from None


def _spark_type(kind: pa.DataType) -> types.DataType:
    """Spark's type for one of Arrow's."""
    from pyspark.sql.pandas.types import from_arrow_type

    if _columns.is_list(kind):
        return types.ArrayType(_spark_type(kind.value_type))
    return from_arrow_type(_SPARKS.get(kind, kind))
