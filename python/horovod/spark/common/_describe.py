"""The metadata of Parquet files that another program has written."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import pyarrow as pa

from horovod.spark.common import _columns, _metadata, _parquet, _prepare, _row_groups

_SAMPLE = 1000  # rows whose shapes are looked at; the reader checks the others


def part(path: str, storage_options: Mapping[str, Any], columns: Sequence[str]) -> _metadata.Part:
    """What is known of a folder: what is written there, or what its first rows tell.

    Raises:
        ValueError: it has no rows, not these columns, or rows of different shapes.
    """
    folder = _parquet.Folder(path, storage_options, columns)
    if folder.part is not None:
        return folder.part
    if not folder.rows:
        raise ValueError(f"{path} has no rows")
    first = next(group for group in folder.row_groups if group.rows)
    sample = next(folder.stream([_row_groups.Piece(first, 0, min(first.rows, _SAMPLE))]))
    described = {name: _described(name, sample.column(name)) for name in folder.columns}
    return _metadata.Part(
        files=[], rows=folder.rows, size=sum(group.size for group in folder.row_groups), columns=described
    )


def _described(name: str, column: pa.ChunkedArray) -> dict[str, Any]:
    shape = _columns.shape(name, column)
    if _columns.is_vector(column.type):
        from pyspark.ml.linalg import VectorUDT

        return _prepare.describe(VectorUDT(), shape, _columns.only_sparse(column.combine_chunks()), None)
    from pyspark.sql.pandas.types import from_arrow_type

    return _prepare.describe(from_arrow_type(column.type), shape, False, None)
