"""Writes a data frame of Spark to a store, in one pass that also finds the columns' shapes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import random
import time
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence, Union

import pyarrow as pa

from horovod.spark import _refusal, _session
from horovod.spark.common import _columns, _files, _metadata, _names, _writing, constants

_CHOICE = "__horovod_validation"
_SEEN = 30.0  # how many seconds files that tasks wrote elsewhere may take to appear here

Validation = Union[None, float, str]


def prepare(
    df: Any,
    train: str,
    val: str,
    storage_options: Mapping[str, Any],
    columns: Sequence[str],
    validation: Validation,
    compress_sparse: bool,
    partitions: int,
    seed: Optional[int] = None,
) -> tuple[_metadata.Part, Optional[_metadata.Part]]:
    """Write the columns of the data frame to two folders, in place of their content.

    With a ``seed``, the same rows get into the same files in the same order, as far as the data frame has an order.

    Returns:
        What was written to each folder; None for a second folder without rows.

    Raises:
        ValueError: no rows are left for training, values are null, or rows of a column have different shapes.
        OSError: the folders cannot be written, or the driver does not see the files that tasks write.
    """
    folders = [_Folder(path, storage_options) for path in (train, val)]
    for folder in folders:
        folder.empty()
    try:
        parts = _write(df, folders, storage_options, columns, validation, compress_sparse, partitions, seed)
    except BaseException:
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.abandon()
        raise
    return parts[0], parts[1] if parts[1].rows else None


def _write(
    df: Any,
    folders: Sequence[_Folder],
    storage_options: Mapping[str, Any],
    columns: Sequence[str],
    validation: Validation,
    compress_sparse: bool,
    partitions: int,
    seed: Optional[int],
) -> list[_metadata.Part]:
    """Write the rows and then the metadata, and return what was written to each folder."""
    from pyspark.sql import functions

    mark = validation if isinstance(validation, str) and validation not in columns else None  # it is not learnt
    df = df.select(*map(_names.quoted, [*columns, mark] if mark is not None else columns))
    widths = _widths(df) if compress_sparse else {}
    choice = _CHOICE if validation else None
    if choice is not None:
        df = df.withColumn(choice, _chosen(validation, seed))
    if mark is not None:
        df = df.drop(mark)
    if seed is not None:
        df = df.withColumn(_writing.PLACE, functions.monotonically_increasing_id())
    work = _writing.Work(folders[0].url, folders[1].url, dict(storage_options), df.columns, choice, widths)
    rows = _names.numbered(df).repartition(partitions)
    if seed is not None:
        rows = rows.sortWithinPartitions(rows.columns[-1])  # rows come from several hosts, each when it is ready

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from horovod.spark.common import _writing

        texts = [json.dumps(dataclasses.asdict(file)) for file in _writing.write(work, batches)]
        yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})

    with described(df, "horovod: write the rows for the training"):
        told = _collect(rows.mapInArrow(task, "file string"))
    written = [_writing.Written(**json.loads(row.file)) for row in told]
    nulls: collections.Counter[str] = collections.Counter()
    for file in written:
        nulls.update(file.nulls)
    _columns.without_nulls(nulls)
    parts = [_part(df, [file for file in written if file.val == is_val], widths) for is_val in (False, True)]
    if not parts[0].rows:
        others = f": all its {parts[1].rows} rows are for validation" if parts[1].rows else ""
        raise ValueError(f"the data frame has no rows for the training{others}")
    for folder, part in reversed([*zip(folders, parts)]):  # the training's folder last, after all others
        folder.finish(part)
    return parts


def _collect(df: Any) -> list[Any]:
    """The rows of a data frame. A task's error about the data or the store is raised without Spark's text around it."""
    try:
        return list(df.collect())
    except Exception as e:
        for kind, ours in (("_columns.ShapeError", ValueError), ("_writing.StoreError", OSError)):
            found = str(e).rpartition(f"horovod.spark.common.{kind}: ")
            if found[1]:
                raise ours(found[2].splitlines()[0]) from None
        refusal = _refusal.of_rows(e)
        if refusal is None:
            raise
        raise refusal from e


def _chosen(validation: Validation, seed: Optional[int]) -> Any:
    from pyspark.sql import functions

    if isinstance(validation, str):
        return functions.col(_names.quoted(validation)).cast("double")
    # The seed is in the plan, so that a task that runs again chooses the same rows.
    seed = random.getrandbits(62) if seed is None else seed
    return (functions.rand(seed) < functions.lit(validation)).cast("double")


def _widths(df: Any) -> dict[str, int]:
    """The largest number of non-zero elements in the vectors of each column."""
    vectors = [field.name for field in df.schema.fields if _is_vector(field.dataType)]
    if not vectors:
        return {}

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from horovod.spark.common import _columns

        for batch in batches:
            found = [_columns.widest(column) for column in batch.columns]
            yield pa.RecordBatch.from_pydict({"name": vectors, "width": found})

    with described(df, "horovod: measure the sparse vectors"):
        found = _names.numbered(df.select(*map(_names.quoted, vectors))).mapInArrow(task, "name string, width long")
        rows = _collect(found.groupBy("name").max("width"))
    return {row[0]: row[1] for row in rows}


def _is_vector(kind: Any) -> bool:
    return type(kind).__name__ == "VectorUDT"


def _part(df: Any, files: Sequence[_writing.Written], widths: Mapping[str, int]) -> _metadata.Part:
    columns: dict[str, dict[str, Any]] = {}
    for field in df.schema.fields:
        name = field.name
        if name in (_CHOICE, _writing.PLACE) or not files:
            continue
        shape = files[0].shapes[name]
        for file in files:
            if file.shapes[name] != shape:
                raise _columns.differing(name, shape, file.shapes[name])
        sparse = _is_vector(field.dataType) and all(name in file.sparse for file in files)
        columns[name] = describe(field.dataType, shape, sparse, widths.get(name))
    return _metadata.Part(
        sorted(file.name for file in files), sum(f.rows for f in files), sum(f.size for f in files), columns
    )


def describe(kind: Any, shape: Sequence[int], sparse: bool, width: Optional[int]) -> dict[str, Any]:
    """A column's metadata.

    Args:
        kind: its type in Spark.
        shape: of a row; empty for a scalar.
        sparse: whether it has sparse vectors only.
        width: how many elements of a vector are not zero at most, if they are stored compressed.
    """
    size = 1
    for length in shape:
        size *= length
    vector = _is_vector(kind)
    return {
        "spark_data_type": ("SparseVector" if sparse else "DenseVector") if vector else type(kind).__name__,
        "is_sparse_vector_only": sparse,
        "shape": size,
        "intermediate_format": constants.NOCHANGE
        if not vector
        else constants.ARRAY
        if width is None
        else constants.CUSTOM_SPARSE,
        "max_size": size if width is None else width,
    }


class _Folder:
    """A folder of a store, as the driver sees it."""

    def __init__(self, path: str, storage_options: Mapping[str, Any]) -> None:
        self.url = path
        self._filesystem, self._path = _files.open_filesystem(path, storage_options)

    def empty(self) -> None:
        """Remove the folder's content, and make sure that files can be written."""
        if _files.is_private(self._filesystem):
            raise ValueError(
                f"the store {self.url} is memory of this process, which Spark's tasks do not see: choose a folder that "
                "all hosts share"
            )
        try:
            self._refuse_others()
            self.remove()
            _metadata.begin(self._filesystem, self._path)
        except (OSError, NotImplementedError) as e:
            words = str(e) or type(e).__name__
            raise OSError(f"the store's folder {self.url} cannot be written: {words}") from e

    def _refuse_others(self) -> None:
        """Raise OSError if the folder has files that no training wrote, so that these are not lost."""
        there = self._filesystem.find(self._path) if self._filesystem.isdir(self._path) else []
        names = [path.rpartition("/")[2] for path in there]
        others = [name for name in names if not name.endswith(".parquet") and name[:1] not in ("_", ".")]
        if others:
            raise OSError(f"it has files that are no rows of a training, such as {others[0]}: remove them")

    def remove(self) -> None:
        """Remove the folder, if it is there."""
        if self._filesystem.exists(self._path):
            self._filesystem.rm(self._path, recursive=True)

    def abandon(self) -> None:
        """Remove the rows, so that nobody mistakes some of them for all.

        A task that ends later can still make a whole file appear in an object store. There the folder keeps a file that
        says that rows are missing.
        """
        self.remove()
        if not _files.is_local(self._filesystem):
            _metadata.begin(self._filesystem, self._path)

    def finish(self, part: _metadata.Part) -> None:
        """Wait until the files appear, remove those of killed attempts, and write the metadata."""
        until = time.monotonic() + _SEEN
        while True:
            there = self._there()
            missing = [name for name in part.files if name not in there]
            if not missing:
                break
            if time.monotonic() > until:
                raise OSError(
                    f"tasks of Spark have written {missing[0]} to {self.url}, but the driver does not find it there: "
                    "the store must be on a file system that all hosts share"
                )
            time.sleep(0.1)
        for name in there.keys() - set(part.files) - {_metadata.FILE}:
            with contextlib.suppress(OSError):  # the metadata does not name it
                self._filesystem.rm_file(there[name])
        _metadata.write(self._filesystem, self._path, part)

    def _there(self) -> dict[str, str]:
        """The paths of the files by name."""
        self._filesystem.invalidate_cache()
        return {path.rpartition("/")[2]: path for path in self._filesystem.find(self._path)}


@contextlib.contextmanager
def described(df: Any, words: str) -> Iterator[None]:
    """Make Spark's UI show this text for the jobs that begin here."""
    session = df.sparkSession
    if _session.is_connect(session):
        yield
        return
    context = session.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setLocalProperty("spark.job.description", words)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)
