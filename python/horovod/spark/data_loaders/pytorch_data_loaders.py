"""Data loaders of PyTorch tensors, from Parquet files.

>>> from horovod.spark.common.reader import ParquetReader
>>> from horovod.spark.data_loaders.pytorch_data_loaders import PytorchAsyncDataLoader
>>> reader = ParquetReader("/data/train", cur_shard=hvd.rank(), shard_count=hvd.size())
>>> for batch in PytorchAsyncDataLoader(reader=reader, batch_size=64):  # dictionaries of tensors by column
...     ...
"""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Optional

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.spark.common.reader import ParquetReader
from horovod.spark.torch.datamodule import to_tensors

__all__ = [
    "PetastormBatchedDataLoader",
    "PytorchAsyncDataLoader",
    "PytorchDataLoader",
    "PytorchInfiniteAsyncDataLoader",
    "PytorchInfiniteDataLoader",
    "PytorchInmemAsyncDataLoader",
    "PytorchInmemDataLoader",
]


class PytorchDataLoader(BaseDataLoader):
    """Batches of tensors by column. Each iteration has an epoch: the rows of this process once.

    Args:
        reader: reads the rows.
        batch_size: rows of a batch; None: as in the reader.
        shuffling_queue_capacity: above 0 shuffles, 0 does not, regardless of the reader. None: as in the reader.
        name: this loader's name, for its messages.
        limit_step_per_epoch: how many batches an iteration has at most; -1 for all.
        verbose: whether to print a line at the end of each iteration.

    Example:
        >>> [batch["y"].tolist() for batch in PytorchDataLoader(reader, batch_size=2)]
        [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        reader: ParquetReader,
        batch_size: Optional[int] = None,
        shuffling_queue_capacity: Optional[int] = None,
        name: str = "",
        limit_step_per_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.reader = reader.changed(
            batch_size=batch_size, shuffle=None if shuffling_queue_capacity is None else shuffling_queue_capacity > 0
        )
        self.name = name
        self.limit_step_per_epoch = limit_step_per_epoch
        self.verbose = verbose

    def __len__(self) -> int:
        """How many batches an iteration has."""
        count = len(self.reader)
        return count if self.limit_step_per_epoch < 0 else min(count, self.limit_step_per_epoch)

    def _iterate(self) -> Iterator[Any]:
        count = 0
        for batch in itertools.islice(self.reader, len(self)):
            count += 1
            yield to_tensors(batch)
        if self.verbose:
            print(f"{self.name or type(self).__name__}: {count} batches", flush=True)


class PytorchInfiniteDataLoader(PytorchDataLoader):
    """Batches without end: epoch after epoch. An iteration has ``limit_step_per_epoch`` batches, unless that is -1.

    The next iteration continues where the last one ended.

    Args:
        args: as for PytorchDataLoader.
        kwargs: the same.

    Example:
        >>> loader = PytorchInfiniteDataLoader(reader, batch_size=3, limit_step_per_epoch=2)
        >>> [[batch["y"].tolist() for batch in loader] for _ in range(2)]
        [[[0, 1, 2], [3]], [[0, 1, 2], [3]]]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._endless = (batch for _ in itertools.count() for batch in self.reader)

    def __len__(self) -> int:
        """How many batches an iteration has; those of an epoch if there is no limit."""
        return len(self.reader) if self.limit_step_per_epoch < 0 else self.limit_step_per_epoch

    def _iterate(self) -> Iterator[Any]:
        if not self.reader.rows:
            raise ValueError(f"{self.name or type(self).__name__}: there are no rows for this process")
        limit = None if self.limit_step_per_epoch < 0 else self.limit_step_per_epoch
        return map(to_tensors, itertools.islice(self._endless, limit))


class PytorchInmemDataLoader(PytorchDataLoader):
    """Batches of rows that stay in memory after the first epoch.

    Args:
        reader: reads the rows.
        batch_size: rows of a batch; None: as in the reader.
        num_epochs: how many epochs an iteration has; None for no end.
        name: this loader's name, for its messages.
        shuffle: whether to shuffle, regardless of the reader. None: as in the reader.
        limit_step_per_epoch: how many batches an epoch has at most; -1 for all.
        verbose: whether to print a line at the end of each epoch.

    Example:
        >>> [len(batch["y"]) for batch in PytorchInmemDataLoader(reader, batch_size=3, num_epochs=2)]
        [3, 1, 3, 1]
    """

    def __init__(
        self,
        reader: ParquetReader,
        batch_size: Optional[int] = None,
        num_epochs: Optional[int] = 1,
        name: str = "",
        shuffle: Optional[bool] = None,
        limit_step_per_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            reader.changed(shuffle=shuffle, keep=True), batch_size, None, name, limit_step_per_epoch, verbose
        )
        self.num_epochs = num_epochs

    def _iterate(self) -> Iterator[Any]:
        for _ in itertools.count() if self.num_epochs is None else range(self.num_epochs):
            yield from super()._iterate()


class PytorchAsyncDataLoader(AsyncDataLoaderMixin, PytorchDataLoader):
    """A PytorchDataLoader whose tensors a thread makes ahead.

    Args:
        async_loader_queue_size, debug_data_loader: as for AsyncDataLoaderMixin.
        args: as for PytorchDataLoader.
        kwargs: the same.

    Example:
        >>> loader = PytorchAsyncDataLoader(reader=reader, batch_size=2)
        >>> [batch["y"].tolist() for batch in loader]
        [[0, 1], [2, 3]]
    """


class PytorchInfiniteAsyncDataLoader(AsyncDataLoaderMixin, PytorchInfiniteDataLoader):
    """A PytorchInfiniteDataLoader whose tensors a thread makes ahead.

    Args:
        async_loader_queue_size, debug_data_loader: as for AsyncDataLoaderMixin.
        args: as for PytorchInfiniteDataLoader.
        kwargs: the same.

    Example:
        >>> loader = PytorchInfiniteAsyncDataLoader(reader=reader, batch_size=2, limit_step_per_epoch=2)
        >>> [batch["y"].tolist() for batch in loader]
        [[0, 1], [2, 3]]
    """


class PytorchInmemAsyncDataLoader(AsyncDataLoaderMixin, PytorchInmemDataLoader):
    """A PytorchInmemDataLoader whose tensors a thread makes ahead.

    Args:
        async_loader_queue_size, debug_data_loader: as for AsyncDataLoaderMixin.
        args: as for PytorchInmemDataLoader.
        kwargs: the same.

    Example:
        >>> loader = PytorchInmemAsyncDataLoader(reader=reader, batch_size=2)
        >>> [batch["y"].tolist() for batch in loader]
        [[0, 1], [2, 3]]
    """


PetastormBatchedDataLoader = PytorchDataLoader
"""Horovod's name for the loader of batches. Petastorm takes no part."""
