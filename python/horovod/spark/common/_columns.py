"""Columns of Arrow as arrays of numpy, and the vectors of Spark among them."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_VECTOR = {"type", "size", "indices", "values"}
_SPARSE, _DENSE = 0, 1  # in a vector's field "type"


class ShapeError(ValueError):
    """The rows of a column have different shapes, or lack values."""


def is_vector(kind: pa.DataType) -> bool:
    """Whether the type is that of Spark's vectors in Arrow and Parquet."""
    return pa.types.is_struct(kind) and {field.name for field in kind} == _VECTOR


def is_list(kind: pa.DataType) -> bool:
    """Whether the type is that of lists, of any kind."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def to_numpy(name: str, column: Any) -> np.ndarray:
    """A column's values: by rows; for lists and vectors, also by the position in each.

    Args:
        name: the column's name, for errors.
        column: a pyarrow.Array or ChunkedArray.

    Returns:
        An array with a row for each row. Null is NaN among floating-point numbers.

    Raises:
        ShapeError: lists of different lengths, or null where there is no number for it.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_vector(column.type):
        return dense(name, column)
    if is_list(column.type):
        return _of_lists(name, column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if column.null_count and not pa.types.is_floating(column.type) and pa.types.is_primitive(column.type):
        raise ShapeError(
            f"column {name!r} lacks {column.null_count} values of the type {column.type}: fill them, or drop them"
        )
    return column.to_numpy(zero_copy_only=False)


def of_frame(frame: Any) -> dict[str, np.ndarray]:
    """The columns of a pandas.DataFrame as :func:`to_numpy` gives them.

    Values may also be arrays of several dimensions, which Arrow does not accept.

    Raises:
        ShapeError: the rows of a column have different shapes, or lack values.
    """
    stacked = {name: _stacked(str(name), column) for name, column in frame.items() if _is_deep(column)}
    table = pa.Table.from_pandas(frame.drop(columns=list(stacked)), preserve_index=False)
    return {
        str(name): stacked[name] if name in stacked else to_numpy(str(name), table.column(str(name)))
        for name in frame.columns
    }


def _is_deep(column: Any) -> bool:
    """Whether values of the column are arrays of several dimensions."""
    return column.dtype == object and any(isinstance(value, np.ndarray) and value.ndim > 1 for value in column)


def _stacked(name: str, column: Any) -> np.ndarray:
    """Arrays of one shape as one array with a row for each."""
    arrays = [value for value in column if isinstance(value, np.ndarray)]
    if len(arrays) < len(column):
        raise _without_array(name, len(column) - len(arrays))
    for array in arrays:
        if array.shape != arrays[0].shape:
            raise differing(name, arrays[0].shape, array.shape)
    return np.stack(arrays)


def _of_lists(name: str, column: Any) -> np.ndarray:
    most = _length(name, column)
    values = to_numpy(name, column.flatten())
    return values.reshape((len(column), most, *values.shape[1:]))


def shape(name: str, column: Any) -> list[int]:
    """The shape of a row: empty for scalars. Raises ShapeError if the rows' shapes differ."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if is_vector(column.type):
        return [_vector_size(name, column)]
    if not is_list(column.type):
        return []
    return [_length(name, column), *shape(name, column.flatten())]


def nulls(column: Any) -> int:
    """How many values are null: scalars and vectors, or lists and their elements."""
    if not is_list(column.type):
        return int(column.null_count)
    return int(column.null_count) + sum(nulls(chunk.flatten()) for chunk in getattr(column, "chunks", [column]))


def without_nulls(counts: Mapping[str, int]) -> None:
    """Raise ValueError if a column has null values. ``counts`` has how many, by column."""
    found = {name: count for name, count in counts.items() if count}
    if found:
        told = ", ".join(f"{count} in the column {name!r}" for name, count in found.items())
        raise ValueError(
            f"the rows have values that are null: {told}. Fill them (df.fillna), or drop these rows "
            f"(df.dropna(subset={list(found)}))"
        )


def differing(name: str, one: Any, other: Any) -> ShapeError:
    """The error for a column whose rows have different shapes, here or elsewhere."""
    return ShapeError(
        f"column {name!r} has rows of the shapes {list(one)} and {list(other)}: all rows must have the same shape"
    )


def _without_array(name: str, count: int) -> ShapeError:
    return ShapeError(f"column {name!r} has {count} rows without an array: fill them, or drop them")


def _length(name: str, column: Any) -> int:
    """The common length of all lists."""
    if column.null_count:
        raise _without_array(name, column.null_count)
    least, most = lengths(column)
    if least != most:
        raise ShapeError(f"column {name!r} has arrays of {least} to {most} elements: all rows must have the same shape")
    return most


def lengths(column: Any) -> tuple[int, int]:
    """The length of the shortest and of the longest list; zeros if there is none."""
    if pa.types.is_fixed_size_list(column.type):
        return (column.type.list_size,) * 2
    ends = pc.min_max(pc.list_value_length(column)).as_py()
    return ends["min"] or 0, ends["max"] or 0


def vector_sizes(column: Any) -> np.ndarray:
    """How many elements each vector has, including zeros."""
    stored = pc.list_value_length(column.field("values")).fill_null(0).to_numpy(zero_copy_only=False)
    size = column.field("size").fill_null(0).to_numpy(zero_copy_only=False)
    return np.where(_is_dense(column), stored, size)


def row_size(column: Any) -> float:
    """About how many bytes a row takes as an array of numpy, in which vectors include zeros."""
    if is_vector(column.type):
        return 8.0 * int(vector_sizes(column).max(initial=0))
    return float(column.nbytes) / max(len(column), 1)


def only_sparse(column: Any) -> bool:
    """Whether no vector is dense."""
    return not bool(_is_dense(column).any())


def _is_dense(column: Any) -> np.ndarray:
    return column.field("type").fill_null(_DENSE).to_numpy(zero_copy_only=False) == _DENSE


def _vector_size(name: str, column: Any) -> int:
    """The common size of all vectors."""
    if column.null_count:
        raise ShapeError(f"column {name!r} has {column.null_count} rows without a vector: fill them, or drop them")
    sizes = vector_sizes(column)
    if not len(sizes):
        return 0
    if sizes.min() != sizes.max():
        raise ShapeError(
            f"column {name!r} has vectors of {sizes.min()} to {sizes.max()} elements: all rows must have the same shape"
        )
    return int(sizes[0])


def dense(name: str, column: Any) -> np.ndarray:
    """Vectors as rows of a matrix, in float64. Raises ShapeError if their sizes differ."""
    size = _vector_size(name, column)
    counts, places, values = _elements(column)
    matrix = np.zeros((len(column), size))
    matrix[np.repeat(np.arange(len(column)), counts), places] = values
    return matrix


def lists(matrix: np.ndarray) -> pa.Array:
    """The rows of a matrix as lists."""
    ends = np.arange(len(matrix) + 1, dtype=np.int64) * matrix.shape[1]
    return pa.LargeListArray.from_arrays(ends, matrix.reshape(-1))


def dense_vectors(matrix: np.ndarray) -> pa.Array:
    """The rows of a matrix as dense vectors of Spark."""
    count, width = matrix.shape
    values = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * width, pa.array(matrix.reshape(-1)))
    return _vectors(_DENSE, pa.nulls(count, pa.int32()), pa.nulls(count, pa.list_(pa.int32())), values)


def sparse_vectors(matrix: np.ndarray) -> pa.Array:
    """The rows of a matrix as sparse vectors of Spark."""
    rows, places = np.nonzero(matrix)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))]).astype(np.int32)
    indices = pa.ListArray.from_arrays(ends, pa.array(places.astype(np.int32)))
    values = pa.ListArray.from_arrays(ends, pa.array(matrix[rows, places]))
    return _vectors(_SPARSE, pa.array(np.full(len(matrix), matrix.shape[1], np.int32)), indices, values)


def _vectors(kind: int, size: Any, indices: Any, values: Any) -> pa.Array:
    kinds = pa.array(np.full(len(values), kind, np.int8))
    return pa.StructArray.from_arrays([kinds, size, indices, values], names=["type", "size", "indices", "values"])


def without_vectors(table: pa.Table) -> pa.Table:
    """The rows with lists in place of vectors."""
    for place, name in enumerate(table.column_names):
        column = table.column(place)
        if is_vector(column.type):
            table = table.set_column(place, name, lists(dense(name, column.combine_chunks())))
    return table


def compressed(name: str, column: Any, width: int) -> np.ndarray:
    """Vectors as rows ``[n, n indices, n values, zeros]`` of ``1 + 2 * width`` numbers, where n values are not zero."""
    _vector_size(name, column)
    counts, places, values = _elements(column)
    kept = values != 0
    rows = np.repeat(np.arange(len(column)), counts)[kept]
    counts = np.bincount(rows, minlength=len(column))
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)  # within the row
    matrix = np.zeros((len(column), 1 + 2 * width))
    matrix[:, 0] = counts
    matrix[rows, 1 + place] = places[kept]
    matrix[rows, 1 + counts[rows] + place] = values[kept]
    return matrix


def widest(column: Any) -> int:
    """The largest number of non-zero elements in a vector."""
    counts, _, values = _elements(column)
    rows = np.repeat(np.arange(len(column)), counts)[values != 0]
    return int(np.bincount(rows).max()) if len(rows) else 0


def decompress(matrix: np.ndarray, size: int) -> np.ndarray:
    """The rows of ``size`` elements from which :func:`compressed` made the matrix.

    Args:
        matrix: rows ``[n, n indices, n values, zeros]``.
        size: the size of the vectors: ``shape`` in the column's metadata.
    """
    counts = matrix[:, 0].astype(np.int64)
    rows = np.repeat(np.arange(len(matrix)), counts)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    result = np.zeros((len(matrix), size), dtype=matrix.dtype)
    result[rows, matrix[rows, 1 + place].astype(np.int64)] = matrix[rows, 1 + counts[rows] + place]
    return result


def _elements(column: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many elements each vector stores, and the place and the value of each element."""
    lists = column.field("values")
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    values = lists.flatten().to_numpy(zero_copy_only=False)
    places = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    sparse = np.repeat(~_is_dense(column), counts)
    places[sparse] = column.field("indices").flatten().to_numpy(zero_copy_only=False)
    return counts, places, values
