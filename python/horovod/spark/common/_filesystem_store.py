"""Stores on file systems that fsspec knows."""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, ContextManager, Mapping, Optional

from horovod.spark.common import _files, _given, _metadata, _sync
from horovod.spark.common._store import RemoteStore, Store


class AbstractFilesystemStore(Store):
    """A store whose paths are in one file system.

    Args:
        prefix_path: the folder for everything that has no other path.
        train_path: the folder of the training rows; ``intermediate_train_data`` below the prefix without it.
        val_path: the folder of the validation rows; ``intermediate_val_data`` without it.
        test_path: the folder of the test rows; ``intermediate_test_data`` without it.
        runs_path: the folder of the runs; ``runs`` without it.
        save_runs: whether checkpoints and logs are kept.
        storage_options: arguments for the file system of fsspec, such as keys and an endpoint.
        checkpoint_filename: the checkpoint's name within a run's folder; ``checkpoint`` without it.

    Raises:
        TypeError: a path is no text, or ``storage_options`` is no dictionary.
        ValueError: a path is empty, or a URL with a password; or ``checkpoint_filename`` is no name of a file.

    Example:
        >>> class Archive(AbstractFilesystemStore):
        ...     def get_full_path(self, path):
        ...         return "file:///archive" + path
        >>> Archive("/first").get_run_path("run_1")
        'file:///archive/first/runs/run_1'
    """

    _checkpoint_filename = "checkpoint"

    def __init__(
        self,
        prefix_path: str,
        train_path: Optional[str] = None,
        val_path: Optional[str] = None,
        test_path: Optional[str] = None,
        runs_path: Optional[str] = None,
        save_runs: bool = True,
        storage_options: Optional[Mapping[str, Any]] = None,
        checkpoint_filename: Optional[str] = None,
    ) -> None:
        if storage_options is not None and not isinstance(storage_options, Mapping):
            raise TypeError(f"storage_options of the type {type(storage_options).__name__}: a dict is needed")
        if checkpoint_filename and (not isinstance(checkpoint_filename, str) or _is_path(checkpoint_filename)):
            raise ValueError(f"checkpoint_filename={checkpoint_filename!r}: it must be a name for one file")
        self.prefix_path = self._whole(_given.path("prefix_path", prefix_path))
        self.storage_options = dict(storage_options or {})
        self._train_path = self._path("train_path", train_path, "intermediate_train_data")
        self._val_path = self._path("val_path", val_path, "intermediate_val_data")
        self._test_path = self._path("test_path", test_path, "intermediate_test_data")
        self._runs_path = self._path("runs_path", runs_path, "runs")
        self._save_runs = save_runs
        self._checkpoint_filename = checkpoint_filename or self._checkpoint_filename
        self._opened: Any = None

    def _path(self, what: str, given: Optional[str], name: str) -> str:
        return self._whole(_given.path(what, given)) if given else join(self.prefix_path, name)

    def _whole(self, path: str) -> str:
        _files.refuse_secrets(path)
        return self.get_full_path(path)

    def get_full_path(self, path: str) -> str:
        """Complete a path. A subclass may define it.

        Args:
            path: a path or URL.

        Returns:
            The path as a URL.
        """
        return path

    @property
    def fs(self) -> Any:
        """The file system, as an object of fsspec."""
        if self._opened is None:
            self._opened, _ = _files.open_filesystem(self.prefix_path, self.storage_options)
        return self._opened

    def get_localized_path(self, path: str) -> str:
        """Take the scheme from a URL.

        Args:
            path: a URL.

        Returns:
            The path within the file system.
        """
        return str(self.fs._strip_protocol(_given.path("path", path)))

    def _at(self, path: str) -> tuple[Any, str]:
        """The file system of a path, and the path in it. The runs may be elsewhere than the rows."""
        if "://" in _given.path("path", path):
            return _files.open_filesystem(path, self.storage_options)
        return self.fs, self.get_localized_path(path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def is_parquet_dataset(self, path: str) -> bool:
        try:
            return bool(self.get_parquet_dataset(path).files)
        except (OSError, ValueError):  # no such folder, files of another kind
            return False

    def get_parquet_dataset(self, path: str) -> Any:
        from pyarrow import parquet

        from horovod.spark.common import _parquet

        filesystem, folder = self._at(path)
        files = _metadata.files(filesystem, folder, _metadata.read(filesystem, folder))
        if not files:
            raise ValueError(f"{path} has no Parquet files")
        arrows = _files.for_arrow(filesystem)
        partitions = _parquet.dataset(arrows, folder, files).partitioning
        return parquet.ParquetDataset(files, filesystem=arrows, partitioning=partitions)

    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        return _numbered(self._train_path, idx)

    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        return _numbered(self._val_path, idx)

    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        return _numbered(self._test_path, idx)

    def saving_runs(self) -> bool:
        return self._save_runs

    def get_runs_path(self) -> str:
        return self._runs_path

    def get_run_path(self, run_id: str) -> str:
        _given.run_id(run_id)
        return join(self._runs_path, run_id)

    def get_checkpoint_path(self, run_id: str) -> Optional[str]:
        return join(self.get_run_path(run_id), self._checkpoint_filename) if self._save_runs else None

    def get_checkpoints(self, run_id: str, suffix: str = ".ckpt") -> list[str]:
        folder = self.get_run_path(run_id)
        if not self.exists(folder):
            return []
        filesystem, path = self._at(folder)
        names = map(os.path.basename, filesystem.find(path, maxdepth=1))
        return [join(folder, name) for name in sorted(names) if name.endswith(suffix)]

    def get_logs_path(self, run_id: str) -> Optional[str]:
        return join(self.get_run_path(run_id), self.get_logs_subdir()) if self._save_runs else None

    def get_checkpoint_filename(self) -> str:
        return self._checkpoint_filename

    def get_logs_subdir(self) -> str:
        return "logs"

    def exists(self, path: str) -> bool:
        filesystem, path = self._at(path)
        filesystem.invalidate_cache()  # other programs write here, too
        return bool(filesystem.exists(path))

    def read(self, path: str) -> bytes:
        filesystem, path = self._at(path)
        with filesystem.open(path, "rb") as file:
            return bytes(file.read())

    def write_text(self, path: str, text: str) -> None:
        _sync.write(*self._at(path), text.encode())

    def get_local_output_dir_fn(self, run_id: str) -> Callable[[], ContextManager[str]]:
        return _sync.LocalFolder(run_id)

    def sync_fn(self, run_id: str) -> Callable[[str], None]:
        return _sync.Sync(self.get_run_path(run_id), self.storage_options)

    def to_remote(self, run_id: str, dataset_idx: Optional[int]) -> RemoteStore:
        return RemoteStore(
            train_data_path=self.get_train_data_path(dataset_idx),
            val_data_path=self.get_val_data_path(dataset_idx),
            test_data_path=self.get_test_data_path(dataset_idx),
            saving_runs=self.saving_runs(),
            runs_path=self.get_runs_path(),
            run_path=self.get_run_path(run_id),
            checkpoint_path=self.get_checkpoint_path(run_id),
            logs_path=self.get_logs_path(run_id),
            checkpoint_filename=self.get_checkpoint_filename(),
            logs_subdir=self.get_logs_subdir(),
            storage_options=dict(self.storage_options),
            get_local_output_dir=self.get_local_output_dir_fn(run_id),
            sync=self.sync_fn(run_id),
        )


class FilesystemStore(AbstractFilesystemStore):
    """A store in a folder: a path, or any URL that fsspec knows, such as ``s3://bucket/folder``.

    A path must lead to the same files on all hosts, as on an NFS. AbstractFilesystemStore documents the arguments.

    Example:
        >>> store = FilesystemStore("/tmp/horovod", checkpoint_filename="latest")
        >>> store.get_checkpoint_path("run_1")
        'file:///tmp/horovod/runs/run_1/latest'
    """

    def get_full_path(self, path: str) -> str:
        """Complete a path. A path without a scheme is one of this machine; it may begin with ``~``.

        Args:
            path: a path or URL.

        Returns:
            The path as a URL.
        """
        path = os.fspath(path)
        if "://" in path:
            return path
        return "file://" + os.path.abspath(os.path.expanduser(path.removeprefix("file:")))


class LocalStore(FilesystemStore):
    """The older name of FilesystemStore.

    Args:
        prefix_path: the folder for everything that has no other path.
        args: further arguments of AbstractFilesystemStore.
        kwargs: the same.

    Example:
        >>> LocalStore("/tmp/horovod").get_runs_path()
        'file:///tmp/horovod/runs'
    """

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        warnings.warn("LocalStore is deprecated: use FilesystemStore", DeprecationWarning, stacklevel=2)
        super().__init__(prefix_path, *args, **kwargs)


def join(folder: str, name: str) -> str:
    """The path of an entry of the folder."""
    return folder.rstrip("/") + "/" + name


def _is_path(name: str) -> bool:
    return "/" in name or name in (".", "..")


def _numbered(path: str, idx: Optional[int]) -> str:
    _given.index(idx)
    if idx is not None and path.rstrip("/").endswith(":"):
        raise ValueError(f"{path} is the root of a file system: name a folder there for the rows")
    return path if idx is None else f"{path.rstrip('/')}.{idx}"
