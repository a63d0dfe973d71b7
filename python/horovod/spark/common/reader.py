"""Reads a folder of Parquet files in batches; each process reads its share.

>>> from horovod.spark.common.reader import ParquetReader
>>> reader = ParquetReader(store.get_train_data_path(), batch_size=64, cur_shard=hvd.rank(), shard_count=hvd.size())
>>> for epoch in range(10):
...     for batch in reader:  # {"features": array of (64, 10), "label": array of (64,)}
...         ...
"""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import numpy as np
import pyarrow as pa

from horovod.spark.common import _batches, _columns, _parquet, _prefetch, _row_groups

__all__ = ["DEFAULT_MEMORY", "ParquetReader"]

DEFAULT_MEMORY = 256 << 20
"""Bytes that rows may take in memory, if nobody says otherwise."""


class ParquetReader:
    """Batches of the rows that belong to one of several processes.

    Each row belongs to one process, and the processes' numbers of rows differ by at most one. With shuffling, each
    epoch has another order: of the row groups, so that the processes divide the rows anew; and of the rows in as many
    row groups as fit into a sixth of the memory. All processes must have the same seed.

    Each iteration is an epoch. Threads read ahead meanwhile.

    Args:
        path: a path, or a URL that fsspec knows.
        storage_options: arguments for the file system of fsspec.
        columns: the columns to read; None: all.
        batch_size: rows of a batch. An epoch's last batch may have fewer.
        cur_shard: this process among those that share the rows.
        shard_count: how many processes there are.
        shuffle: whether to shuffle.
        seed: of the shuffling.
        workers: threads that read.
        memory: how many bytes rows may take in memory at a time: a sixth reads ahead, a sixth is shuffled, a sixth is
            for moving rows between these, and the rest is for decoding. Arrow's allocator mimalloc holds up to 50 MiB
            more; processes of horovod.spark have ``ARROW_DEFAULT_MEMORY_POOL=jemalloc``, which does not.
        transform_fn: called in a thread with some of the rows, as a pandas.DataFrame. It returns the rows to use, also
            as a pandas.DataFrame. Values may be arrays, also of several dimensions.
        keep: whether to keep all rows of this process in memory after the first epoch, regardless of ``memory``. The
            process then has the same rows in each epoch.
        drop_last: whether to leave out a last batch with fewer rows.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: it has no such column, or a number makes no sense.

    Example:
        >>> reader = ParquetReader(train_dir, columns=["x", "y"], batch_size=2, shuffle=False)
        >>> next(iter(reader))
        {'x': array([0., 1.]), 'y': array([0, 1])}
    """

    def __init__(
        self,
        path: str,
        storage_options: Optional[Mapping[str, Any]] = None,
        columns: Optional[Sequence[str]] = None,
        batch_size: int = 32,
        cur_shard: int = 0,
        shard_count: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        workers: int = 2,
        memory: int = DEFAULT_MEMORY,
        transform_fn: Optional[Callable[[Any], Any]] = None,
        keep: bool = False,
        drop_last: bool = False,
    ) -> None:
        _check(batch_size=batch_size, shard_count=shard_count, workers=workers, memory=memory)
        if not 0 <= cur_shard < shard_count:
            raise ValueError(f"cur_shard={cur_shard}: it must be at least 0 and below shard_count={shard_count}")
        self._folder = _parquet.Folder(path, storage_options, columns)
        self.batch_size = batch_size
        self._cur_shard = cur_shard
        self._shard_count = shard_count
        self._shuffle = shuffle
        self._seed = seed
        self._workers = workers
        self._memory = memory
        self._transform_fn = transform_fn
        self._keep = keep
        self._kept: Optional[_batches.Columns] = None
        self._drop_last = drop_last
        self.epoch = 0

    @property
    def rows(self) -> int:
        """How many rows this process reads in an epoch, before any transformation."""
        return _row_groups.shard_rows(self._folder.rows, self._cur_shard, self._shard_count)

    @property
    def all_rows(self) -> int:
        """How many rows all processes read in an epoch, together."""
        return self._folder.rows

    def __len__(self) -> int:
        """How many batches an epoch has, if the transformation keeps the number of rows."""
        return self.rows // self.batch_size if self._drop_last else -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[_batches.Columns]:
        """The batches of the next epoch: arrays by column, which the caller may change."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self.batches(epoch)

    def batches(self, epoch: int) -> Iterator[_batches.Columns]:
        """Read an epoch.

        Args:
            epoch: its number; the first is 0. The same number gives the same batches.

        Returns:
            The batches.
        """
        shuffle = np.random.default_rng([self._seed, epoch, self._cur_shard]) if self._shuffle else None
        windows = self._whole() if self._keep else _batches.windows(self._load(epoch), self._memory // 6)
        return _batches.batches(windows, self.batch_size, shuffle, self._drop_last)

    def changed(
        self, batch_size: Optional[int] = None, shuffle: Optional[bool] = None, keep: Optional[bool] = None
    ) -> ParquetReader:
        """Make a reader of the same rows, at its first epoch, with other batches. None keeps this reader's value.

        Args:
            batch_size: rows of a batch.
            shuffle: whether to shuffle.
            keep: whether to keep all rows in memory.

        Returns:
            The other reader.
        """
        other = copy.copy(self)
        other._kept = None
        other.epoch = 0
        if batch_size is not None:
            _check(batch_size=batch_size)
            other.batch_size = batch_size
        if shuffle is not None:
            other._shuffle = shuffle
        if keep is not None:
            other._keep = keep
        return other

    def sample(self) -> _batches.Columns:
        """Read some rows, at most a batch. They are the same in all processes.

        Returns:
            The rows, in the form of a batch.

        Raises:
            ValueError: there are no rows.
        """
        for group in self._folder.row_groups:
            parts = [
                _row_groups.Piece(group, first, min(group.rows, first + self.batch_size))
                for first in range(0, group.rows, self.batch_size)
            ]
            for table in self._folder.stream(parts) if parts else ():
                found = self._convert(table)
                if _batches.rows(found):
                    return found
        left = ": the transformation has left none" if self._transform_fn is not None else ""
        raise ValueError(f"there are no rows{left}")

    def __enter__(self) -> ParquetReader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Release the kept rows."""
        self._kept = None

    def _whole(self) -> Iterator[_batches.Columns]:
        """All rows of this process as one window."""
        if self._kept is None:
            parts = list(self._load(0))
            self._kept = _batches.join(parts) if parts else {}
        yield self._kept

    def _load(self, epoch: int) -> Iterator[_batches.Columns]:
        """The rows of this process in an epoch, in pieces. Threads load them ahead.

        A piece without rows after the transformation does not count, because its columns have no shape.
        """
        loaded = _prefetch.ahead(self._jobs(epoch), self._workers, self._memory // 6, _batches.size)
        return filter(_batches.rows, loaded)

    def _jobs(self, epoch: int) -> Iterator[_prefetch.Job]:
        groups = self._folder.row_groups
        ordered = _row_groups.order(len(groups), self._seed if self._shuffle else None, epoch)
        limit = max(1, self._memory // 32)
        for piece in _row_groups.shard(groups, ordered, self._cur_shard, self._shard_count):
            if piece.group.size <= limit:
                yield _prefetch.Job(functools.partial(self._read, piece), piece.size)
                continue
            parts = list(_row_groups.cut(piece, limit))
            stream = _prefetch.InTurn(functools.partial(self._folder.stream, parts))
            for number, part in enumerate(parts):
                yield _prefetch.Job(functools.partial(self._take, stream, number), part.size)

    def _read(self, piece: _row_groups.Piece) -> _batches.Columns:
        return self._convert(self._folder.read(piece))

    def _take(self, stream: _prefetch.InTurn, number: int) -> _batches.Columns:
        return self._convert(stream.take(number))

    def _convert(self, table: pa.Table) -> _batches.Columns:
        if self._transform_fn is not None:
            return _columns.of_frame(self._transform_fn(_columns.without_vectors(table).to_pandas()))
        return {name: _columns.to_numpy(name, table.column(name)) for name in table.column_names}


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name}={value}: at least 1 is needed")
