"""The Parquet files of a folder, their row groups, and the rows of parts of these."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence

import pyarrow as pa
from pyarrow import dataset as ds
from pyarrow import parquet

from horovod.spark.common import _columns, _files, _metadata
from horovod.spark.common._row_groups import Piece, RowGroup

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}  # of a decoded value, in bytes
_OBJECT = 64  # bytes of a text in addition to its characters, in Python and in an array
_BUFFER = 1 << 20  # of each column's compressed bytes, while a row group is read in pieces


class Folder:
    """The Parquet files of a folder, from any writer.

    Args:
        path: a path or URL.
        storage_options: arguments for the file system.
        columns: which columns to read; all without it.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it has no Parquet files, or not these columns.
    """

    def __init__(
        self, path: str, storage_options: Optional[Mapping[str, Any]] = None, columns: Optional[Sequence[str]] = None
    ) -> None:
        self.path = path
        filesystem, folder = _files.open_filesystem(path, storage_options)
        self._filesystem = _files.for_arrow(filesystem)
        self._local = _files.is_local(filesystem)
        self.part = _metadata.read(filesystem, folder)
        files = _metadata.files(filesystem, folder, self.part)
        if not files:
            raise ValueError(f"{path} has no Parquet files")
        try:
            found = dataset(self._filesystem, folder, files)
            self._fragments = list(found.get_fragments())
            for fragment in self._fragments:
                fragment.ensure_complete_metadata()
        except FileNotFoundError as e:
            raise FileNotFoundError(
                f"{path} lacks a file that its description names: {e}: prepare the data again"
            ) from e
        self.schema: pa.Schema = found.schema
        self.columns = list(found.schema.names if columns is None else columns)
        missing = [name for name in self.columns if name not in found.schema.names]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; it has {', '.join(found.schema.names)}")
        self.row_groups = [group for i in range(len(self._fragments)) for group in self._of_file(i)]

    @property
    def rows(self) -> int:
        """How many rows all files have."""
        return sum(group.rows for group in self.row_groups)

    def nulls(self) -> dict[str, int]:
        """How many values of each column are null, as far as the files' statistics tell. Empty lists count, too."""
        counts = dict.fromkeys(self.columns, 0)
        for fragment in self._fragments:
            metadata = fragment.metadata
            for c in range(metadata.num_columns):
                path = metadata.schema.column(c).path
                name = next((name for name in self.columns if path == name or path.startswith(name + ".")), None)
                if name is None or (_columns.is_vector(self.schema.field(name).type) and path != name + ".type"):
                    continue  # the other fields of a vector may be null though the vector is not
                for index in range(metadata.num_row_groups):
                    told = metadata.row_group(index).column(c).statistics
                    counts[name] += told.null_count if told is not None and told.has_null_count else 0
        return counts

    def _of_file(self, file: int) -> Iterator[RowGroup]:
        metadata = self._fragments[file].metadata
        read = [c for c in range(metadata.num_columns) if self._is_read(metadata.schema.column(c).path)]
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            size = sum(_decoded(group.column(c)) for c in read)
            yield RowGroup(file, index, group.num_rows, size)

    def _is_read(self, path: str) -> bool:
        return any(path == name or path.startswith(name + ".") for name in self.columns)

    def _open(self, file: int, **options: Any) -> tuple[Any, list[str], dict[str, Any]]:
        """The file, the columns that it has, and the columns that its path tells, with their values."""
        fragment = self._fragments[file]
        told = ds.get_partition_keys(fragment.partition_expression)
        told = {name: value for name, value in told.items() if name in self.columns}
        opened = parquet.ParquetFile(
            fragment.path, metadata=fragment.metadata, filesystem=self._filesystem, memory_map=False, **options
        )
        return opened, [name for name in self.columns if name not in told], told

    def read(self, piece: Piece) -> pa.Table:
        """The piece's rows. This decodes the whole row group."""
        opened, names, told = self._open(piece.group.file, pre_buffer=not self._local)
        with opened:
            table = opened.read_row_group(piece.group.index, columns=names, use_threads=False)
        return self._complete(table.slice(piece.first, piece.stop - piece.first), told)

    def stream(self, pieces: Sequence[Piece]) -> Iterator[pa.Table]:
        """The rows of each of several pieces of one row group, in turn, without decoding the whole row group."""
        group = pieces[0].group
        most = max(piece.stop - piece.first for piece in pieces)
        opened, names, told = self._open(group.file, pre_buffer=False, buffer_size=_BUFFER)
        with opened:
            batches = opened.iter_batches(most, row_groups=[group.index], columns=names, use_threads=False)
            held: list[pa.RecordBatch] = []
            at = 0  # of held's first row
            for piece in pieces:
                while at + sum(map(len, held)) < piece.stop:
                    held.append(next(batches))
                    while held and at + len(held[0]) <= piece.first:
                        at += len(held.pop(0))
                table = pa.Table.from_batches(held)
                yield self._complete(table.slice(piece.first - at, piece.stop - piece.first), told)
                while held and at + len(held[0]) <= piece.stop:
                    at += len(held.pop(0))

    def _complete(self, table: pa.Table, told: Mapping[str, Any]) -> pa.Table:
        for name, value in told.items():
            table = table.append_column(name, pa.array([value] * len(table), self.schema.field(name).type))
        return table.select(self.columns)


def dataset(filesystem: Any, folder: str, files: Sequence[str]) -> Any:
    """The files as a data set. Folders below ``folder``, but not above, may be partitions such as ``year=2026``."""
    options = ds.FileSystemFactoryOptions(folder, ds.HivePartitioning.discover())
    return ds.FileSystemDatasetFactory(filesystem, files, ds.ParquetFileFormat(), options).finish()


def _decoded(column: Any) -> int:
    """About how many bytes the values of a row group's column take when decoded."""
    width = _WIDTHS.get(column.physical_type)
    if width is not None:
        return int(column.num_values) * width
    return int(column.total_uncompressed_size) + _OBJECT * int(column.num_values)
