"""Stores on DBFS, the file system of Databricks, which its hosts have below /dbfs."""

from __future__ import annotations

import os
from typing import Any

from horovod.spark.common._filesystem_store import AbstractFilesystemStore

_MOUNT = "/dbfs/"
_FORMS = ("dbfs:///", "dbfs:/", "file:///dbfs/", "file:/dbfs/", _MOUNT)


def on_databricks() -> bool:
    """Whether this is a host of Databricks."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


class DBFSLocalStore(AbstractFilesystemStore):
    """A store on DBFS. ``dbfs:/path``, ``/dbfs/path``, ``file:/dbfs/path`` and ``file:///dbfs/path`` mean the same.

    Args:
        prefix_path: the folder for everything that has no other path.
        args: further arguments of AbstractFilesystemStore.
        kwargs: the same.

    Raises:
        ValueError: the path is none of these.

    Example:
        >>> DBFSLocalStore("dbfs:/horovod").get_checkpoint_path("run_1")
        '/dbfs/horovod/runs/run_1/checkpoint.tf'
    """

    _checkpoint_filename = "checkpoint.tf"

    def __init__(self, prefix_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(prefix_path, *args, **kwargs)

    @classmethod
    def matches(cls, path: str) -> bool:
        """Look at the beginning of a path.

        Args:
            path: a path or URL.

        Returns:
            Whether the path is one of DBFS.
        """
        return path.startswith(_FORMS)

    @classmethod
    def normalize_path(cls, path: str) -> str:
        """Convert a path to its form on the hosts.

        Args:
            path: a path or URL.

        Returns:
            ``/dbfs/path``.

        Raises:
            ValueError: it is no path of DBFS.
        """
        for form in _FORMS:
            if path.startswith(form):
                return _MOUNT + path[len(form) :].lstrip("/")
        raise ValueError(f"{path}: a path of DBFS begins with dbfs:/ or /dbfs/")

    def get_full_path(self, path: str) -> str:
        """Convert a path to its form on the hosts.

        Args:
            path: a path or URL.

        Returns:
            ``/dbfs/path``.
        """
        return self.normalize_path(path)
