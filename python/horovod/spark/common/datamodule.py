"""Data modules, from which an estimator's training process gets its batches."""

from __future__ import annotations

import abc
import warnings
from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.spark.common._loader import Loader
from horovod.spark.common.reader import DEFAULT_MEMORY, ParquetReader

__all__ = ["DataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]


READER_POOL_TYPES = ("thread", "process", "dummy")  # petastorm's; here threads read in all cases


class DataModule(abc.ABC):
    """The batches of one training process, as a context manager. An estimator makes one in each process.

    Args:
        train_dir: the folder of the training rows, as a path or URL.
        val_dir: the folder of the validation rows.
        num_train_epochs: how many epochs the training has.
        has_val: whether there are validation rows.
        train_batch_size: rows of a batch for training.
        val_batch_size: rows of a batch for validation.
        shuffle: whether to shuffle the training rows.
        transform_fn: turns rows, as a pandas.DataFrame, into the rows to use.
        inmemory_cache_all: whether to keep all rows in memory after the first epoch.
        cur_shard: this process among those that share the rows.
        shard_count: how many processes there are.
        schema_fields: the columns to read; None: all.
        storage_options: arguments for the file system of fsspec.
        steps_per_epoch_train: batches of an epoch of training.
        steps_per_epoch_val: batches of a validation.
        verbose: whether to print more.
        kwargs: for subclasses.

    Example:
        >>> class Same(DataModule):
        ...     def __enter__(self):
        ...         return self
        ...     def __exit__(self, *exception):
        ...         pass
        ...     def train_data(self):
        ...         return [{"x": [0.0], "y": [1]}] * self.steps_per_epoch_train
        ...     def val_data(self):
        ...         return None
        >>> with Same(train_dir, val_dir, steps_per_epoch_train=3) as data:
        ...     len(data.train_data())
        3
    """

    def __init__(
        self,
        train_dir: str,
        val_dir: str,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Optional[Callable[[Any], Any]] = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Optional[Sequence[str]] = None,
        storage_options: Optional[Mapping[str, Any]] = None,
        steps_per_epoch_train: Optional[int] = 1,
        steps_per_epoch_val: Optional[int] = 1,
        verbose: Any = True,
        **kwargs: Any,
    ) -> None:
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.num_train_epochs = num_train_epochs
        self.has_val = has_val
        self.train_batch_size = train_batch_size
        self.val_batch_size = val_batch_size
        self.shuffle = shuffle
        self.transform_fn = transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard = cur_shard
        self.shard_count = shard_count
        self.schema_fields = schema_fields
        self.storage_options = storage_options
        self.steps_per_epoch_train = steps_per_epoch_train
        self.steps_per_epoch_val = steps_per_epoch_val
        self.verbose = verbose
        self.kwargs = kwargs

    @abc.abstractmethod
    def __enter__(self) -> Any:
        """Open the readers."""

    @abc.abstractmethod
    def __exit__(self, *exception: Any) -> None:
        """Close the readers."""

    @abc.abstractmethod
    def train_data(self) -> Any:
        """Read for training.

        Returns:
            The batches.
        """

    @abc.abstractmethod
    def val_data(self) -> Any:
        """Read for validation.

        Returns:
            The batches; None if there are no validation rows.
        """


class ParquetDataModule(DataModule):
    """Batches from Parquet files: dictionaries of numpy arrays by column. :class:`ParquetReader` documents the reading.

    Each iteration of ``train_data()`` and ``val_data()`` has an epoch's batches: ``steps_per_epoch_train`` or
    ``steps_per_epoch_val`` of them, or each row once if these are None.

    Args:
        train_dir, val_dir, args: as for DataModule.
        reader_pool_type: ``thread``. For other kinds of petastorm's readers threads are used, too, with a warning.
        train_reader_worker_count: threads that read training rows.
        val_reader_worker_count: threads that read validation rows.
        random_seed: for the shuffling, the same in all processes; None: 0.
        memory: bytes that each of the two readers may take in memory for rows.
        kwargs: as for DataModule.

    Raises:
        ValueError: ``reader_pool_type`` does not exist.

    Example:
        >>> with ParquetDataModule(train_dir, val_dir, train_batch_size=2, steps_per_epoch_train=None) as data:
        ...     sum(len(batch["x"]) for batch in data.train_data())
        4
    """

    def __init__(
        self,
        train_dir: str,
        val_dir: str,
        *args: Any,
        reader_pool_type: str = "thread",
        train_reader_worker_count: int = 2,
        val_reader_worker_count: int = 2,
        random_seed: Optional[int] = None,
        memory: int = DEFAULT_MEMORY,
        **kwargs: Any,
    ) -> None:
        super().__init__(train_dir, val_dir, *args, **kwargs)
        if reader_pool_type not in READER_POOL_TYPES:
            raise ValueError(f"reader_pool_type={reader_pool_type!r}: only 'thread' is known")
        if reader_pool_type != "thread":
            warnings.warn(f"reader_pool_type={reader_pool_type!r}: threads read Parquet files here", stacklevel=2)
        self.train_reader_worker_count = train_reader_worker_count
        self.val_reader_worker_count = val_reader_worker_count
        self.random_seed = random_seed
        self.memory = memory
        self.train_reader: Optional[ParquetReader] = None
        self.val_reader: Optional[ParquetReader] = None

    def __enter__(self) -> ParquetDataModule:
        self.train_reader = self._reader(
            self.train_dir, self.train_batch_size, self.shuffle, self.train_reader_worker_count
        )
        if self.has_val:
            self.val_reader = self._reader(self.val_dir, self.val_batch_size, False, self.val_reader_worker_count)
        return self

    def __exit__(self, *exception: Any) -> None:
        for reader in (self.train_reader, self.val_reader):
            if reader is not None:
                reader.close()

    def _reader(self, path: str, batch_size: int, shuffle: bool, workers: int) -> ParquetReader:
        return ParquetReader(
            path,
            storage_options=self.storage_options,
            columns=self.schema_fields,
            batch_size=batch_size,
            cur_shard=self.cur_shard,
            shard_count=self.shard_count,
            shuffle=shuffle,
            seed=self.random_seed or 0,
            workers=workers,
            memory=self.memory,
            transform_fn=self.transform_fn,
            keep=self.inmemory_cache_all,
        )

    def train_data(self) -> Any:
        """Read for training.

        Returns:
            The batches.

        Raises:
            RuntimeError: the data module was not entered.
        """
        if self.train_reader is None:
            raise RuntimeError("enter the data module first: with module: ...")
        return self._loader(self.train_reader, self.steps_per_epoch_train)

    def val_data(self) -> Any:
        """Read for validation.

        Returns:
            The batches; None if there are no validation rows.
        """
        if self.val_reader is None:
            return None
        return self._loader(self.val_reader, self.steps_per_epoch_val)

    def _loader(self, reader: ParquetReader, steps: Optional[int]) -> Any:
        return Loader(reader, steps)


PetastormDataModule = ParquetDataModule
"""Horovod's name for the data module that reads Parquet. Petastorm takes no part."""


class NVTabularDataModule:
    """Horovod's name for a data module that reads by NVTabular on GPUs. This version does not have it.

    Args:
        args: ignored.
        kwargs: the same.

    Raises:
        NotImplementedError: whenever it is made.

    Example:
        >>> NVTabularDataModule("/data/train", "/data/val")
        Traceback (most recent call last):
        NotImplementedError: NVTabularDataModule needs NVTabular, RAPIDS and GPUs of NVIDIA...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "NVTabularDataModule needs NVTabular, RAPIDS and GPUs of NVIDIA, and gorovod does not read by it: leave "
            "data_module out, and ParquetDataModule reads the same files"
        )
