"""A data set's description of itself: a file of JSON beside its Parquet files, whose name Parquet's readers skip."""

from __future__ import annotations

import dataclasses
import json
import posixpath
from typing import Any, Optional

from horovod.spark.common import _files, _sync

FILE = "_horovod.json"
_VERSION = 1
_COLUMN = {"spark_data_type", "is_sparse_vector_only", "shape", "intermediate_format", "max_size"}


@dataclasses.dataclass
class Part:
    """One folder of Parquet files.

    Attributes:
        files: their names.
        rows: of all files.
        size: the rows' uncompressed bytes.
        columns: a dictionary for each column, as users see it, but with the names of Spark's types.
    """

    files: list[str]
    rows: int
    size: int
    columns: dict[str, dict[str, Any]]

    def typed(self) -> dict[str, dict[str, Any]]:
        """The columns as users see them: with Spark's types."""
        return {
            name: {**column, "spark_data_type": _spark_type(column["spark_data_type"])}
            for name, column in self.columns.items()
        }


def begin(filesystem: Any, folder: str) -> None:
    """Note in a folder that its files are still being written, so that nobody mistakes some of the rows for all."""
    _write(filesystem, folder, {"unfinished": True})


def write(filesystem: Any, folder: str, part: Part) -> None:
    """Write a folder's metadata, after its files."""
    _write(filesystem, folder, dataclasses.asdict(part))


def _write(filesystem: Any, folder: str, fields: dict[str, Any]) -> None:
    text = json.dumps({"version": _VERSION, **fields}, indent=1)
    _sync.write(filesystem, posixpath.join(folder, FILE), text.encode())


def files(filesystem: Any, folder: str, part: Optional[Part]) -> list[str]:
    """The paths of a folder's data: the files that its metadata names, or all files if it has no metadata.

    Other files may exist there, from attempts of Spark's tasks that were killed.
    """
    if part is None:
        return _files.data_files(filesystem, folder)
    return [posixpath.join(folder, name) for name in part.files]


def read(filesystem: Any, folder: str) -> Optional[Part]:
    """A folder's metadata; None if it has none, as with Parquet files of other programs.

    Raises:
        ValueError: the file is not from :func:`write`, or rows are missing.
    """
    path = posixpath.join(folder, FILE)
    try:
        with filesystem.open(path, "rb") as file:
            found = json.loads(file.read())
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, not the description of the data: prepare the data again") from None
    except ValueError as e:
        raise ValueError(f"{path} is no JSON: {e}: prepare the data again") from None
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        raise ValueError(f"{path} is of another version of gorovod: prepare the data again")
    if found.get("unfinished"):
        raise ValueError(
            f"the rows in {folder} are incomplete: another job is still writing them, or was killed. If no job writes "
            "them now, prepare the data again"
        )
    fields: dict[str, Any] = {field.name: found.get(field.name) for field in dataclasses.fields(Part)}
    part = Part(**fields)
    if not _is_whole(part):
        raise ValueError(f"{path} is damaged: prepare the data again")
    return part


def _is_whole(part: Part) -> bool:
    """Whether all fields are as :func:`write` writes them."""
    return (
        isinstance(part.files, list)
        and all(isinstance(name, str) and name not in ("", ".", "..") and "/" not in name for name in part.files)
        and all(_is_count(number) for number in (part.rows, part.size))
        and isinstance(part.columns, dict)
        and all(map(_is_column, part.columns.values()))
    )


def _is_column(column: Any) -> bool:
    return isinstance(column, dict) and set(column) == _COLUMN and _is_count(column["shape"])


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _spark_type(name: str) -> type:
    """The class of that name: one of Spark's types of columns, or of its vectors."""
    from pyspark.ml import linalg
    from pyspark.sql import types

    if name in ("DenseVector", "SparseVector"):
        return getattr(linalg, name)
    found = getattr(types, name, None)
    if not (isinstance(found, type) and issubclass(found, types.DataType)):
        raise ValueError(f"{name!r} is no type of a column of Spark")
    return found
