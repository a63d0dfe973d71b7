"""The part of a Spark task that writes its rows as Parquet. It reaches the store by fsspec, as the training does."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import socket
import uuid
from typing import Any, Iterable, Iterator, Mapping, Optional

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark import TaskContext

from horovod.spark.common import _columns, _files

PLACE = "__horovod_place"  # the optional column with a row's position in the data frame
_ROW_GROUP = 8 << 20  # bytes: small enough for processes to share rows evenly, and to hold several in memory


class StoreError(OSError):
    """A task cannot write to the store."""


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of the writing tasks.

    Attributes:
        train: the folder of the training rows.
        val: the folder of the validation rows.
        storage_options: arguments for the file system.
        names: the names of the incoming rows' columns.
        choice: the column that marks validation rows by values above 0. None if there are none.
        widths: for each column of vectors to compress, the largest number of non-zero elements.
    """

    train: str
    val: str
    storage_options: Mapping[str, Any] = dataclasses.field(repr=False)
    names: list[str]
    choice: Optional[str]
    widths: Mapping[str, int]


@dataclasses.dataclass
class Written:
    """A file that a task has written.

    Attributes:
        val: whether its rows are for validation.
        name: the file's name.
        rows: how many there are.
        size: of the rows, in bytes.
        shapes: by column, the shape of a row.
        sparse: the columns whose vectors are all sparse.
        nulls: by column, how many values are null. If there are any, the file lacks rows, and must not be read.
    """

    val: bool
    name: str
    rows: int
    size: int
    shapes: dict[str, list[int]]
    sparse: list[str]
    nulls: dict[str, int]


def write(work: Work, batches: Iterable[pa.RecordBatch]) -> list[Written]:
    """Write the rows of one task.

    Raises:
        ShapeError: the rows of a column have different shapes.
        StoreError: the files cannot be written.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(contextlib.closing(_File(work, val))) for val in (False, True)]
        for batch in batches:
            table = pa.Table.from_batches([batch]).rename_columns(work.names)
            if PLACE in work.names:
                table = table.drop_columns([PLACE])
            for file, rows in zip(files, _split(work, table)):
                file.add(rows)
        return [file.finish() for file in files if file.rows]


def _split(work: Work, rows: pa.Table) -> Iterator[pa.Table]:
    if work.choice is None:
        yield rows
        return
    chosen = pc.greater(rows.column(work.choice).cast(pa.float64()), 0).fill_null(False)
    rows = rows.drop_columns([work.choice])
    yield rows.filter(pc.invert(chosen))
    yield rows.filter(chosen)


class _File:
    """A file of Parquet, created with its first rows."""

    def __init__(self, work: Work, val: bool) -> None:
        self._work = work
        self._folder = work.val if val else work.train
        self._stored: Any = None
        self._writer: Any = None
        self._held: list[pa.Table] = []
        # Begins with the task's number, because readers sort files by name; ends with the attempt's own id.
        name = f"part-{TaskContext.get().partitionId():05d}-{uuid.uuid4().hex[:12]}.parquet"
        self._written = Written(val, name, 0, 0, {}, [], {})

    @property
    def rows(self) -> int:
        return self._written.rows

    def add(self, rows: pa.Table) -> None:
        """Write the rows, or hold them until they fill a row group."""
        if not len(rows):
            return
        if self._count_nulls(rows):
            self._written.rows += len(rows)
            return
        sparse = [c for c in rows.column_names if _all_sparse(rows.column(c))]
        self._written.sparse = sparse if not self.rows else [c for c in self._written.sparse if c in sparse]
        for name in rows.column_names:
            self._shape(name, rows.column(name))
        rows = _plain(rows, self._work.widths)
        self._written.rows += len(rows)
        self._written.size += rows.nbytes
        self._held.append(rows)
        if sum(table.nbytes for table in self._held) >= _ROW_GROUP:
            self._flush()

    def _count_nulls(self, rows: pa.Table) -> bool:
        """Whether any value is null, in these rows or earlier ones."""
        nulls = self._written.nulls
        for name in rows.column_names:
            count = _columns.nulls(rows.column(name))
            if count:
                nulls[name] = nulls.get(name, 0) + count
        return bool(nulls)

    def _shape(self, name: str, column: pa.ChunkedArray) -> None:
        shape = _columns.shape(name, column)
        if self._written.shapes.setdefault(name, shape) != shape:
            raise _columns.differing(name, self._written.shapes[name], shape)

    def _flush(self) -> None:
        table = pa.concat_tables(self._held)
        self._held.clear()
        with self._storing():
            if self._writer is None:
                filesystem, folder = _files.open_filesystem(self._folder, self._work.storage_options)
                self._stored = filesystem.open(posixpath.join(folder, self._written.name), "wb")
                self._writer = parquet.ParquetWriter(self._stored, table.schema)
            self._writer.write_table(table, row_group_size=len(table))

    @contextlib.contextmanager
    def _storing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ImportError) as e:
            raise StoreError(
                f"a task on {socket.gethostname()} cannot write to {self._folder}: {type(e).__name__}: {e}. All hosts "
                "must see the same store, be able to write there, and have the package for it, such as s3fs"
            ) from e

    def finish(self) -> Written:
        """Write the held rows, and return what was written."""
        if self._held:
            self._flush()
        self.close()
        return self._written

    def close(self) -> None:
        """Close the file. If this happens before :meth:`finish`, no metadata names the file, so nobody reads it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._storing():
                writer.close()
                self._stored.close()


def _all_sparse(column: pa.ChunkedArray) -> bool:
    return _columns.is_vector(column.type) and _columns.only_sparse(column.combine_chunks())


def _plain(rows: pa.Table, widths: Mapping[str, int]) -> pa.Table:
    """The rows with lists in place of vectors."""
    for name, width in widths.items():
        place = rows.schema.get_field_index(name)
        matrix = _columns.compressed(name, rows.column(place).combine_chunks(), width)
        rows = rows.set_column(place, name, _columns.lists(matrix))
    return _columns.without_vectors(rows)
