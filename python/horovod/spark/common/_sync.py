"""Copies the files that a run writes on a training process's own disk to its folder in the store."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
import uuid
from typing import Any, Iterator, Mapping

from horovod.spark.common import _files


class LocalFolder:
    """Makes a folder on this machine for a run to write in, and removes it afterwards.

    On an executor it is in Spark's own folder, which Spark removes at the application's end, even after the process was
    killed.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    @contextlib.contextmanager
    def __call__(self) -> Iterator[str]:
        sparks = [path for path in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if os.path.isdir(path)]
        folder = tempfile.mkdtemp(prefix=f"horovod-{self._run_id}-", dir=sparks[0] if sparks else None)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class Sync:
    """Copies files that are new or have changed since the last call. It deletes nothing in the store."""

    def __init__(self, run_path: str, storage_options: Mapping[str, Any]) -> None:
        self._run_path = run_path
        self._storage_options = dict(storage_options)
        self._copied: dict[str, tuple[int, int]] = {}

    def __call__(self, local_folder: str) -> None:
        filesystem, run_path = _files.open_filesystem(self._run_path, self._storage_options)
        for folder, _, names in os.walk(local_folder):
            for name in names:
                source = os.path.join(folder, name)
                state = os.stat(source)
                version = (state.st_mtime_ns, state.st_size)
                if self._copied.get(source) == version:
                    continue
                put(filesystem, source, posixpath.join(run_path, os.path.relpath(source, local_folder)))
                self._copied[source] = version


def put(filesystem: Any, source: str, path: str) -> None:
    """Copy a file from this machine. Readers of ``path`` see either the old or all of the new content."""
    filesystem.makedirs(posixpath.dirname(path), exist_ok=True)
    if not _has_rename(filesystem):
        filesystem.put_file(source, path)
        return
    beside = _beside(path)
    try:
        filesystem.put_file(source, beside)
        _replace(filesystem, beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm_file(beside)
        raise


def write(filesystem: Any, path: str, contents: bytes) -> None:
    """Write a file, and the folders above it. Readers see either the old or all of the new content."""
    filesystem.makedirs(posixpath.dirname(path), exist_ok=True)
    target = _beside(path) if _has_rename(filesystem) else path
    with filesystem.open(target, "wb") as file:
        file.write(contents)
    if target != path:
        _replace(filesystem, target, path)


def check(filesystem: Any, folder: str) -> None:
    """Raise OSError or NotImplementedError unless files can be written in the folder. Makes the folder if necessary."""
    probe = posixpath.join(folder, "_probe")
    write(filesystem, probe, b"")
    filesystem.rm_file(probe)


def _has_rename(filesystem: Any) -> bool:
    """Whether files appear while they are written, and can be renamed. In an object store they appear when closed."""
    return _files.is_local(filesystem) or "hdfs" in _files.protocols(filesystem)


def _replace(filesystem: Any, source: str, path: str) -> None:
    if _files.is_local(filesystem):
        os.replace(source, path)
    else:
        filesystem.mv(source, path)


def _beside(path: str) -> str:
    folder, name = posixpath.split(path)
    return posixpath.join(folder, f"_{name}.{uuid.uuid4().hex[:8]}")
