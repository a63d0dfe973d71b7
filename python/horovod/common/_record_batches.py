"""A rank's rows of a sparse table as record batches of Arrow, for all front ends."""

from __future__ import annotations

from typing import Any, Iterator

from horovod.common._tables import Table


def record_batches(table: Table, rows: int) -> Iterator[Any]:
    """Record batches of at most ``rows`` rows, or one slot. ValueError and ImportError are raised at once."""
    if rows < 1:
        raise ValueError(f"rows must be above 0, not {rows}")
    try:
        import pyarrow
    except ImportError as e:
        raise ImportError("record_batches needs pyarrow: pip install pyarrow") from e
    return _batches(table, rows, pyarrow)


def _batches(table: Table, rows: int, pyarrow: Any) -> Iterator[Any]:
    dim = table.dim
    schema = pyarrow.schema({"key": pyarrow.int64(), "row": pyarrow.list_(pyarrow.float32(), dim)})

    def make(n: int) -> tuple[Any, int, int]:
        keys, weights = pyarrow.allocate_buffer(8 * n), pyarrow.allocate_buffer(4 * n * dim)
        return (keys, weights), keys.address, weights.address

    for (keys, weights), n in table.copies(rows, make):
        numbers = pyarrow.Array.from_buffers(pyarrow.float32(), n * dim, [None, weights])
        columns = [
            pyarrow.Array.from_buffers(pyarrow.int64(), n, [None, keys]),
            pyarrow.FixedSizeListArray.from_arrays(numbers, dim),
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)
