"""Prepares a data frame for training, and describes the prepared data.

>>> from horovod.spark.common import util
>>> with util.prepare_data(2, store, df, label_columns=["y"], feature_columns=["x"], validation=0.1) as idx:
...     train_rows, val_rows, metadata, row_size = util.get_dataset_properties(idx)
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Iterator, Optional, Sequence, Union

from horovod.spark.common import _cache, _describe, _metadata, _prepare
from horovod.spark.common._store import Store

__all__ = [
    "check_shape_compatibility",
    "check_validation",
    "clear_training_cache",
    "get_dataset_properties",
    "get_simple_meta_from_parquet",
    "prepare_data",
]

Properties = tuple[int, int, dict[str, dict[str, Any]], float]


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: Store,
    df: Any,
    label_columns: Sequence[str],
    feature_columns: Sequence[str],
    validation: Union[None, float, str] = None,
    sample_weight_col: Optional[str] = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
    seed: Optional[int] = None,
) -> Iterator[int]:
    """Write the rows of a data frame to a store, for the processes of a training to read.

    Vectors are written as arrays. Existing rows are overwritten. If several trainings of this process have the same
    data frame, columns, validation and store at the same time, it is written once.

    Args:
        num_processes: how many processes train.
        store: where to write.
        df: the data frame. Each column's rows must have the same shape.
        label_columns: the columns to learn.
        feature_columns: the columns to learn from.
        validation: the fraction of rows for validation, from 0 to below 1, chosen at random; or the column that marks
            them, by true or by a number above 0. That column is not written, unless it is learnt, too.
        sample_weight_col: the column of the rows' weights.
        compress_sparse: whether to write only the non-zero elements of vectors.
        partitions_per_process: files to write for each process.
        verbose: above 0 prints what is done.
        seed: chooses the rows for validation, and gives each row the same place in the files again, if the data frame's
            rows come in the same order; None: at random.

    Returns:
        A context manager of the index of the data set in the store, for ``store.get_train_data_path(index)``. It
        belongs to this data set until the context ends.

    Raises:
        TypeError: ``df`` is no data frame of Spark.
        ValueError: there is no such column, ``validation`` makes no sense, there are no rows for the training, values
            are null, or a column's rows have different shapes.
        OSError: the store cannot be written.
        RuntimeError: Spark could not write the rows, for example because a function that makes them failed.

    Example:
        >>> with prepare_data(2, store, df, label_columns=["y"], feature_columns=["x"]) as index:
        ...     store.is_parquet_dataset(store.get_train_data_path(index))
        True
    """
    if not hasattr(df, "mapInArrow"):
        raise TypeError(f"a data frame of Spark is needed, not {type(df).__name__}: spark.createDataFrame makes one")
    if df.isStreaming:
        raise ValueError("the data frame is a stream, which has no end: write its rows, and train on what is written")
    check_validation(validation, df)
    columns = _columns(feature_columns, label_columns, sample_weight_col)
    missing = [name for name in columns if name not in df.columns]
    if missing:
        raise ValueError(f"the data frame has no column {missing[0]!r}; it has {', '.join(df.columns)}")
    if num_processes < 1 or partitions_per_process < 1:
        raise ValueError(
            f"num_processes={num_processes}, partitions_per_process={partitions_per_process}: at least 1 is needed"
        )
    paths = (store.get_train_data_path(), store.get_val_data_path())
    key = _cache.Key(df, paths, (*columns, validation, compress_sparse, seed))

    def write(idx: int) -> Properties:
        train, val = store.get_train_data_path(idx), store.get_val_data_path(idx)
        if verbose:
            print(f"horovod.spark: writing the rows to {train}" + (f" and {val}" if validation else ""), flush=True)
        parts = _prepare.prepare(
            df,
            train,
            val,
            _storage_options(store),
            columns,
            validation,
            compress_sparse,
            num_processes * partitions_per_process,
            seed,
        )
        return _properties(*parts)

    with _cache.use(key, write) as idx:
        yield idx


def get_dataset_properties(dataset_idx: int) -> Properties:
    """The properties of a data set that :func:`prepare_data` has written.

    Args:
        dataset_idx: the index from :func:`prepare_data`.

    Returns:
        The numbers of rows for training and for validation, a dictionary for each column (``spark_data_type``,
        ``shape``, ``max_size``, ``intermediate_format``, ``is_sparse_vector_only``), and the average bytes of a row.

    Raises:
        KeyError: no training uses this data set now.

    Example:
        >>> with util.prepare_data(2, store, df, label_columns=["y"], feature_columns=["x"]) as index:
        ...     train_rows, val_rows, columns, row_size = get_dataset_properties(index)
        >>> train_rows, val_rows, columns["x"]["shape"]
        (4, 0, 1)
    """
    return _cache.properties(dataset_idx)


def get_simple_meta_from_parquet(
    store: Store,
    label_columns: Sequence[str],
    feature_columns: Sequence[str],
    sample_weight_col: Optional[str] = None,
    dataset_idx: Optional[int] = None,
) -> Properties:
    """The properties of Parquet files that are already in a store.

    Args:
        store: the store. Its folder for training must have files; that for validation may have some.
        label_columns: the columns to learn.
        feature_columns: the columns to learn from.
        sample_weight_col: the column of the rows' weights.
        dataset_idx: the index of the data set, if there are several.

    Returns:
        As :func:`get_dataset_properties`.

    Raises:
        ValueError: the folder for training has no Parquet files, not these columns, or rows of different shapes.

    Example:
        >>> df.write.mode("overwrite").parquet(store.get_train_data_path(9))
        >>> get_simple_meta_from_parquet(store, label_columns=["y"], feature_columns=["x"], dataset_idx=9)[0]
        4
    """
    columns = _columns(feature_columns, label_columns, sample_weight_col)
    path = store.get_train_data_path(dataset_idx)
    if not store.exists(path):
        raise ValueError(f"{path} does not exist: write the rows for the training there")
    train = _describe.part(path, _storage_options(store), columns)
    val = None
    if store.is_parquet_dataset(store.get_val_data_path(dataset_idx)):
        val = _describe.part(store.get_val_data_path(dataset_idx), _storage_options(store), columns)
    return _properties(train, val)


def check_validation(validation: Union[None, float, str], df: Any = None) -> None:
    """Check an estimator's parameter for validation.

    Args:
        validation: the fraction of the rows, or a column.
        df: the data frame that has the column.

    Raises:
        ValueError: it is neither a number from 0 to below 1 nor the name of a column of booleans or numbers.

    Example:
        >>> check_validation(0.2)
        >>> check_validation(1.5)
        Traceback (most recent call last):
        ValueError: validation=1.5: a share of the rows is at least 0 and below 1
    """
    if validation is None:
        return
    if isinstance(validation, str):
        if df is None:
            return
        if validation not in df.columns:
            there = ", ".join(df.columns)
            raise ValueError(f"validation={validation!r}: the data frame has no such column; it has {there}")
        kind = df.schema[validation].dataType.typeName()
        if kind not in ("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"):
            raise ValueError(f"validation={validation!r}: the column must have booleans or numbers, not {kind}")
    elif isinstance(validation, bool) or not isinstance(validation, (int, float)):
        raise ValueError(f"validation={validation!r}: it must be a share of the rows, or a column's name")
    elif not 0 <= validation < 1:
        raise ValueError(f"validation={validation}: a share of the rows is at least 0 and below 1")


def check_shape_compatibility(
    metadata: dict[str, dict[str, Any]],
    feature_columns: Sequence[str],
    label_columns: Sequence[str],
    input_shapes: Optional[Sequence[Sequence[int]]] = None,
    output_shapes: Optional[Sequence[Sequence[int]]] = None,
    label_shapes: Optional[Sequence[Sequence[int]]] = None,
) -> None:
    """Check that the columns have as many elements as the model expects.

    Args:
        metadata: of the columns. A ``shape`` of None is unknown, and not checked.
        feature_columns: the columns to learn from.
        label_columns: the columns to learn.
        input_shapes: of the model's inputs, with -1 (or None) for the rows of a batch, one for each feature column.
        output_shapes: the same for the model's outputs, one for each label column.
        label_shapes: the same for the labels, if they differ from the outputs'.

    Raises:
        ValueError: a column does not fit; the text has its name, its size and the shape.

    Example:
        >>> check_shape_compatibility({"x": {"shape": 784}}, ["x"], [], input_shapes=[[-1, 28, 28]])
    """
    for what, columns, shapes in (
        ("input", feature_columns, input_shapes),
        ("label" if label_shapes is not None else "output", label_columns, label_shapes or output_shapes),
    ):
        if shapes is None:
            continue
        if len(columns) != len(shapes):
            raise ValueError(f"there are {len(columns)} {what} columns, but {len(shapes)} {what} shapes")
        for name, shape in zip(columns, shapes):
            size = metadata[name]["shape"]
            wanted = math.prod(abs(int(length)) for length in shape if length is not None)
            if size is not None and size != wanted:
                raise ValueError(
                    f"column {name!r} has {size} elements in each row, but the model's {what} of the shape "
                    f"{list(shape)} has {wanted}"
                )


def clear_training_cache() -> None:
    """Forget the data sets of this process, including those in use. The files stay.

    Example:
        >>> clear_training_cache()
    """
    _cache.clear()


def _columns(features: Sequence[str], labels: Sequence[str], weight: Optional[str]) -> list[str]:
    """All columns that are read, each once."""
    return list(dict.fromkeys([*features, *labels, *([weight] if weight else [])]))


def _storage_options(store: Store) -> dict[str, Any]:
    return dict(getattr(store, "storage_options", None) or {})


def _properties(train: _metadata.Part, val: Optional[_metadata.Part]) -> Properties:
    rows = train.rows + (val.rows if val else 0)
    size = train.size + (val.size if val else 0)
    return train.rows, val.rows if val else 0, train.typed(), size / max(rows, 1)
