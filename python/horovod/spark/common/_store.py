"""The interface of stores: where an estimator keeps data, checkpoints and logs."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Callable, ContextManager, Optional

kinds: list[tuple[Callable[[str], bool], Callable[..., Store]]] = []
"""Which paths belong to which class of stores; the first that matches counts. Module ``store`` fills it."""


@dataclasses.dataclass(frozen=True)
class RemoteStore:
    """What a training process needs of a store: paths and functions for one run. It can be pickled."""

    train_data_path: str
    val_data_path: str
    test_data_path: str
    saving_runs: bool
    runs_path: str
    run_path: str
    checkpoint_path: Optional[str]
    logs_path: Optional[str]
    checkpoint_filename: str
    logs_subdir: str
    storage_options: dict[str, Any]
    get_local_output_dir: Callable[[], ContextManager[str]]
    sync: Callable[[str], None]


class Store(abc.ABC):
    """Where an estimator keeps intermediate data, checkpoints and logs.

    Whoever can write to a store can make the training processes load what they like: give it only to those you trust.

    Example:
        >>> store = Store.create("/tmp/horovod")
        >>> store.get_train_data_path(0)
        'file:///tmp/horovod/intermediate_train_data.0'
    """

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """The store that suits a path or URL.

        Args:
            prefix_path: a folder: a path of a file system that all hosts share, or a URL that fsspec knows.
            args: further arguments of the store's class.
            kwargs: the same.

        Returns:
            An HDFSStore for ``hdfs://``; on Databricks a DBFSLocalStore for a path of DBFS; else a FilesystemStore.
        """
        return next(kind for matches, kind in kinds if matches(prefix_path))(prefix_path, *args, **kwargs)

    @abc.abstractmethod
    def is_parquet_dataset(self, path: str) -> bool:
        """Whether the folder holds Parquet files."""

    @abc.abstractmethod
    def get_parquet_dataset(self, path: str) -> Any:
        """The folder's Parquet files, as a ``pyarrow.parquet.ParquetDataset``."""

    @abc.abstractmethod
    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        """The folder of the training rows, of the data set ``idx`` if there are several."""

    @abc.abstractmethod
    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        """The folder of the validation rows."""

    @abc.abstractmethod
    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        """The folder of the test rows."""

    @abc.abstractmethod
    def saving_runs(self) -> bool:
        """Whether checkpoints and logs are kept."""

    @abc.abstractmethod
    def get_runs_path(self) -> str:
        """The folder of all runs."""

    @abc.abstractmethod
    def get_run_path(self, run_id: str) -> str:
        """The folder of one run."""

    @abc.abstractmethod
    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        """The file of a run's checkpoint, or None if runs are not saved."""

    @abc.abstractmethod
    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """The files of a run's folder that end in ``suffix``, by name."""

    @abc.abstractmethod
    def get_logs_path(self, run_id: str) -> Optional[str]:
        """The folder of a run's logs, or None if runs are not saved."""

    @abc.abstractmethod
    def get_checkpoint_filename(self) -> str:
        """The checkpoint's name within the run's folder."""

    @abc.abstractmethod
    def get_logs_subdir(self) -> str:
        """The logs' name within the run's folder."""

    @abc.abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""

    @abc.abstractmethod
    def read(self, path: str) -> bytes:
        """The file's contents."""

    @abc.abstractmethod
    def write_text(self, path: str, text: str) -> None:
        """Write a file in UTF-8, and the folders on the way to it."""

    @abc.abstractmethod
    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], ContextManager[str]]:
        """A function that returns a context manager of a local folder, in which a run may write."""

    @abc.abstractmethod
    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """A function that copies what is new in a local folder to the run's folder."""

    @abc.abstractmethod
    def to_remote(self, run_id: str, dataset_idx: Optional[int]) -> RemoteStore:
        """What a training process needs of this store."""
