"""The interface of stores, in which an estimator keeps data, checkpoints and logs."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, Callable, ContextManager, Optional

from horovod.spark.common import _given

kinds: list[tuple[Callable[[str], bool], Callable[..., Store]]] = []
"""Which paths belong to which class of stores; the first that matches counts. Module ``store`` fills it."""


@dataclasses.dataclass(frozen=True)
class RemoteStore:
    """The part of a store that a training process needs: paths and functions for one run. It can be pickled.

    Args:
        train_data_path: the folder of the training rows.
        val_data_path: the folder of the validation rows.
        test_data_path: the folder of the test rows.
        saving_runs: whether checkpoints and logs are kept.
        runs_path: the folder of all runs.
        run_path: the folder of this run.
        checkpoint_path: the file of its checkpoint, or None if runs are not saved.
        logs_path: the folder of its logs, or None.
        checkpoint_filename: the checkpoint's name within the run's folder.
        logs_subdir: the name of the logs' folder there.
        storage_options: arguments for the file system of fsspec.
        get_local_output_dir: returns a context manager of a local folder to write in.
        sync: copies new files of a local folder to the run's folder.

    Example:
        >>> remote = store.to_remote("run_1", dataset_idx=None)
        >>> remote.checkpoint_path
        'file:///...runs/run_1/checkpoint'
        >>> with remote.get_local_output_dir() as folder:
        ...     written = open(f"{folder}/notes.txt", "w").write("done")
        ...     remote.sync(folder)
    """

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
    storage_options: dict[str, Any] = dataclasses.field(repr=False)  # it may hold keys
    get_local_output_dir: Callable[[], ContextManager[str]]
    sync: Callable[[str], None]


class Store(abc.ABC):
    """Where an estimator keeps intermediate data, checkpoints and logs.

    Anybody who can write to a store can make the training processes load anything: share it only with those you trust.

    Example:
        >>> store = Store.create("/tmp/horovod")
        >>> store.get_train_data_path(0)
        'file:///tmp/horovod/intermediate_train_data.0'
    """

    @staticmethod
    def create(prefix_path: str, *args: Any, **kwargs: Any) -> Store:
        """The store for a path or URL.

        Args:
            prefix_path: a folder: a path of a file system that all hosts share, or a URL that fsspec knows.
            args: further arguments of the store's class.
            kwargs: the same.

        Returns:
            An HDFSStore for ``hdfs://``; on Databricks a DBFSLocalStore for a path of DBFS; otherwise a
            FilesystemStore.

        Raises:
            TypeError: the path is no text.
            ValueError: it is empty, or a URL with a password.
        """
        prefix_path = _given.path("prefix_path", prefix_path)
        return next(kind for matches, kind in kinds if matches(prefix_path))(prefix_path, *args, **kwargs)

    @abc.abstractmethod
    def is_parquet_dataset(self, path: str) -> bool:
        """Look for Parquet files.

        Args:
            path: a folder.

        Returns:
            Whether the folder holds some.
        """

    @abc.abstractmethod
    def get_parquet_dataset(self, path: str) -> Any:
        """Open Parquet files.

        Args:
            path: their folder.

        Returns:
            A ``pyarrow.parquet.ParquetDataset``.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: the folder has no Parquet files.
        """

    @abc.abstractmethod
    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        """Tell where the training rows are.

        Args:
            idx: the number of the data set, if there are several.

        Returns:
            The folder.
        """

    @abc.abstractmethod
    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        """Tell where the validation rows are.

        Args:
            idx: the number of the data set, if there are several.

        Returns:
            The folder.
        """

    @abc.abstractmethod
    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        """Tell where the test rows are.

        Args:
            idx: the number of the data set, if there are several.

        Returns:
            The folder.
        """

    @abc.abstractmethod
    def saving_runs(self) -> bool:
        """Tell whether checkpoints and logs are kept.

        Returns:
            Whether they are.
        """

    @abc.abstractmethod
    def get_runs_path(self) -> str:
        """Tell where the runs are.

        Returns:
            The folder of all runs.
        """

    @abc.abstractmethod
    def get_run_path(self, run_id: str) -> str:
        """Tell where a run is.

        Args:
            run_id: the run's name.

        Returns:
            The folder of this run.
        """

    @abc.abstractmethod
    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        """Tell where a run's checkpoint is.

        Args:
            run_id: the run's name.

        Returns:
            The file, or None if runs are not saved.
        """

    @abc.abstractmethod
    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        """List the files of a run's folder.

        Args:
            run_id: the run's name.
            suffix: the end of their names.

        Returns:
            The files, in the order of their names.
        """

    @abc.abstractmethod
    def get_logs_path(self, run_id: str) -> Optional[str]:
        """Tell where a run's logs are.

        Args:
            run_id: the run's name.

        Returns:
            The folder, or None if runs are not saved.
        """

    @abc.abstractmethod
    def get_checkpoint_filename(self) -> str:
        """Tell the name of checkpoints.

        Returns:
            The name within a run's folder.
        """

    @abc.abstractmethod
    def get_logs_subdir(self) -> str:
        """Tell the name of logs.

        Returns:
            The folder's name within a run's folder.
        """

    @abc.abstractmethod
    def exists(self, path: str) -> bool:
        """Look for a file or folder.

        Args:
            path: a path or URL.

        Returns:
            Whether it is there.
        """

    @abc.abstractmethod
    def read(self, path: str) -> bytes:
        """Read a file.

        Args:
            path: a path or URL.

        Returns:
            The contents.
        """

    @abc.abstractmethod
    def write_text(self, path: str, text: str) -> None:
        """Write a file in UTF-8, and the folders on the way to it.

        Args:
            path: a path or URL.
            text: the contents.
        """

    @abc.abstractmethod
    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], ContextManager[str]]:
        """Make a function that gives a run a local folder to write in.

        Args:
            run_id: the run's name.

        Returns:
            A function that returns a context manager of a folder. It can be pickled.
        """

    @abc.abstractmethod
    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        """Make a function that copies a local folder to the run's folder.

        Args:
            run_id: the run's name.

        Returns:
            A function of the local folder, which copies new files. It can be pickled.
        """

    @abc.abstractmethod
    def to_remote(self, run_id: str, dataset_idx: Optional[int]) -> RemoteStore:
        """Make the part of this store that a training process needs.

        Args:
            run_id: the run's name.
            dataset_idx: the number of the data set, if there are several.

        Returns:
            A RemoteStore. It can be pickled.
        """
