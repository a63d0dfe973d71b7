"""Batches of tensors for Lightning's Trainer, from Parquet files."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Optional

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.spark.common.datamodule import DataModule, NVTabularDataModule
from horovod.spark.lightning import _package
from horovod.spark.torch.datamodule import ParquetDataModule as _ParquetDataModule

__all__ = ["DataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]


class _Batches(BaseDataLoader):
    def __init__(self, loader: Any, convert: Optional[Callable[[Any], Any]]) -> None:
        self._loader = loader
        self._convert = convert

    def __len__(self) -> int:
        return len(self._loader)

    def _iterate(self) -> Iterator[Any]:
        for batch in self._loader:
            yield batch if self._convert is None else self._convert(batch)


class _AsyncBatches(AsyncDataLoaderMixin, _Batches):
    pass


class _Parquet(_ParquetDataModule):
    """See :class:`ParquetDataModule`."""

    def __init__(
        self,
        *args: Any,
        debug_data_loader: bool = False,
        train_async_data_loader_queue_size: Optional[int] = None,
        val_async_data_loader_queue_size: Optional[int] = None,
        convert: Optional[Callable[[Any], Any]] = None,
        even: Optional[Callable[[Any, bool], Any]] = None,
        **kwargs: Any,
    ) -> None:
        _ParquetDataModule.__init__(self, *args, **kwargs)
        self._lightning().__init__(self)
        self._debug = debug_data_loader
        self._queues = (train_async_data_loader_queue_size, val_async_data_loader_queue_size)
        self._convert = convert
        self._even = even

    @classmethod
    def _lightning(cls) -> Any:
        return next(base for base in cls.__mro__ if base.__name__ == "LightningDataModule")

    def setup(self, stage: Optional[str] = None) -> None:
        """Open the files.

        Args:
            stage: ignored.
        """
        self.__enter__()

    def teardown(self, stage: Optional[str] = None) -> None:
        """Close them.

        Args:
            stage: ignored.
        """
        self.__exit__()

    def train_dataloader(self) -> Any:
        """Read for training.

        Returns:
            The batches.
        """
        return self._batches(self.train_data(), True)

    def val_dataloader(self) -> Any:
        """Read for validation.

        Returns:
            The batches; none if there are no validation rows.
        """
        found = self.val_data()
        return [] if found is None else self._batches(found, False)

    def _batches(self, loader: Any, training: bool) -> Any:
        size = self._queues[0 if training else 1]
        made = _AsyncBatches(size or 0, self._debug, loader, self._convert)
        return made if self._even is None else self._even(made, training)


def of(package: Any) -> Any:
    """The class of the data module for a package's Trainer."""
    return _package.derive(_Parquet, package.LightningDataModule)


class ParquetDataModule(of(_package.preferred())):  # type: ignore[misc]
    """A LightningDataModule over Parquet files. Batches are dictionaries of tensors by column.

    Args:
        args: of DataModule (horovod.spark.common.datamodule).
        debug_data_loader: whether to print on stderr how many batches were ready when the training asked.
        train_async_data_loader_queue_size: how many training batches a thread makes ahead; None for no such thread.
        val_async_data_loader_queue_size: the same for validation.
        convert: a function of each batch.
        even: turns a process's batches into those for all processes; None: they are used as they are.
        kwargs: of DataModule, and of horovod.spark.common.datamodule.ParquetDataModule.

    Example:
        >>> data = ParquetDataModule(train_dir, val_dir, train_batch_size=64, steps_per_epoch_train=None)
        >>> trainer.fit(line, datamodule=data)
    """


PetastormDataModule = ParquetDataModule
"""Horovod's name for the data module that reads Parquet. Petastorm takes no part."""
