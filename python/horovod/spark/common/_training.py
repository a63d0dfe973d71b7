"""What an estimator's driver sends to its training processes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Mapping, Optional, Sequence

import numpy as np

from horovod.spark.common import _columns
from horovod.spark.common._store import RemoteStore
from horovod.spark.common.constants import CUSTOM_SPARSE
from horovod.spark.common.datamodule import ParquetDataModule


@dataclasses.dataclass(frozen=True)
class Transformation:
    """The change of rows between the files and the training.

    Attributes:
        function: takes rows as a pandas.DataFrame, and returns rows.
        edited: (name, type of numpy, shape, whether it may be null) of the columns that the function makes or changes.
            A shape, or one of its lengths, may be None.
        removed: columns to leave out afterwards.
    """

    function: Optional[Callable[[Any], Any]]
    edited: Optional[Sequence[Sequence[Any]]]
    removed: Optional[Sequence[str]]

    def __bool__(self) -> bool:
        return self.function is not None or bool(self.edited) or bool(self.removed)

    def __call__(self, rows: Any) -> Any:
        if self.function is not None:
            rows = self.function(rows)
            if not hasattr(rows, "columns"):
                raise TypeError(f"transformation_fn returned {type(rows).__name__}: a pandas.DataFrame is needed")
        edited = self.edited or ()
        for name, what in [
            *((name, "transformation_removed_fields") for name in self.removed or ()),
            *((field[0], "transformation_edit_fields") for field in edited),
        ]:
            if name not in rows.columns:
                there = ", ".join(map(str, rows.columns))
                raise ValueError(f"{what} has {name!r}, but the rows have no such column; they have {there}")
        if self.removed:
            rows = rows.drop(columns=list(self.removed))
        for name, kind, shape, *_ in edited:
            try:
                rows[name] = _cast(rows[name], np.dtype(kind), shape)
            except (TypeError, ValueError) as e:
                raise ValueError(f"transformation_edit_fields: the column {name!r}: {e}") from e
        return rows


def _cast(column: Any, kind: Any, shape: Optional[Sequence[Optional[int]]]) -> Any:
    """The values as numbers, or arrays of the shape. None, for a shape or a length, keeps the present one."""
    if shape is None and len(column) and np.ndim(column.iloc[0]):
        return [_array(value, kind) for value in column]
    if not shape:
        return column.astype(kind)
    return [_shaped(_array(value, kind), shape) for value in column]


def _array(value: Any, kind: Any) -> np.ndarray:
    """A row's value as an array of numbers. pandas treats arrays of arrays as arrays of objects."""
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1 and len(value) and np.ndim(value[0]):
        return np.stack([_array(part, kind) for part in value])
    return np.asarray(value, dtype=kind)


def _shaped(array: np.ndarray, shape: Sequence[Optional[int]]) -> np.ndarray:
    """The array in another shape. None is the array's own length, or the rest if the dimensions differ."""
    if array.ndim == len(shape):
        return array.reshape([own if length is None else length for own, length in zip(array.shape, shape)])
    if list(shape).count(None) > 1:
        raise ValueError(
            f"a row has the shape {list(array.shape)}, and so {tuple(shape)} can leave one length open only"
        )
    return array.reshape([-1 if length is None else length for length in shape])


@dataclasses.dataclass(frozen=True)
class Data:
    """The rows of a training, and how they are read.

    Attributes:
        module: the class of the data module.
        own: whether the class is ours, unchanged. A user's data module is told how many batches to give.
        columns: the properties of each column: its size, and how it is stored.
        features: the columns to learn from.
        labels: the columns to learn.
        weight: the column with the rows' weights.
        train_rows: how many rows there are for training.
        val_rows: and for validation; 0 for no validation.
        batch_size: rows of a batch.
        val_batch_size: the same for validation.
        shuffle: whether to shuffle the training rows.
        train_steps: batches of an epoch, if the user has set the number.
        val_steps: the same for validation.
        transformation: the change of the rows.
        keep: whether to keep all rows in memory.
        train_threads: threads that read training rows.
        val_threads: the same for validation.
        pool: the kind of readers.
        further: arguments for a data module of the user's.
    """

    module: Any
    own: bool
    columns: Mapping[str, Mapping[str, Any]]
    features: Sequence[str]
    labels: Sequence[str]
    weight: Optional[str]
    train_rows: int
    val_rows: int
    batch_size: int
    val_batch_size: int
    shuffle: bool
    train_steps: Optional[int]
    val_steps: Optional[int]
    transformation: Transformation
    keep: bool
    train_threads: int
    val_threads: int
    pool: str
    further: Mapping[str, Any]

    def steps(self, size: int, passes: int = 1) -> tuple[int, int]:
        """How many batches an epoch has on each of ``size`` processes, for training and for validation, rounded up.

        For training, the number is rounded up to a multiple of ``passes``, the batches of a step.
        """
        train = self.train_steps or math.ceil(self.train_rows / self.batch_size / size / passes) * passes
        return train, self.val_steps or math.ceil(self.val_rows / self.val_batch_size / size)

    def open(
        self, training: Training, rank: int, size: int, steps: tuple[Optional[int], Optional[int]], **more: Any
    ) -> Any:
        """The data module of a process, with the batches of an epoch for training and for validation."""
        further = {**self.further, **more}
        if isinstance(self.module, type) and issubclass(self.module, ParquetDataModule):
            further.update(
                reader_pool_type=self.pool,
                train_reader_worker_count=self.train_threads,
                val_reader_worker_count=self.val_threads,
                random_seed=training.seed,
            )
        columns = [*self.features, *self.labels, *([self.weight] if self.weight else [])]
        opened = self.module(
            train_dir=training.store.train_data_path,
            val_dir=training.store.val_data_path,
            num_train_epochs=training.epochs,
            has_val=self.val_rows > 0,
            train_batch_size=self.batch_size,
            val_batch_size=self.val_batch_size,
            shuffle=self.shuffle,
            transform_fn=self.transformation or None,
            inmemory_cache_all=self.keep,
            cur_shard=rank,
            shard_count=size,
            schema_fields=list(dict.fromkeys(columns)),
            storage_options=training.store.storage_options,
            steps_per_epoch_train=steps[0],
            steps_per_epoch_val=steps[1],
            verbose=training.verbose > 1,
            **further,
        )
        if not hasattr(opened, "train_data") and not hasattr(opened, "train_dataloader"):
            raise TypeError(f"data_module={self.module!r} made {type(opened).__name__}: a DataModule is needed")
        return opened

    def compressed(self, name: str) -> Optional[int]:
        """The size of a column's vectors, if they are stored without zeros; otherwise None."""
        column = self.columns.get(name, {})
        return column["shape"] if column.get("intermediate_format") == CUSTOM_SPARSE else None

    def check(self, batch: Mapping[str, Any]) -> None:
        """Raise ValueError if a batch lacks a column that the training needs."""
        for name in [*self.features, *self.labels, *([self.weight] if self.weight else [])]:
            if name not in batch:
                raise ValueError(
                    f"a batch has no column {name!r}, only {', '.join(batch)}: the transformation or the data module "
                    "must give it"
                )

    def whole(self, name: str, values: np.ndarray) -> np.ndarray:
        """A column's values, including zeros that were not stored."""
        size = self.compressed(name)
        return values if size is None else _columns.decompress(values, size)


@dataclasses.dataclass(frozen=True)
class Training:
    """A training, in the form that each process gets.

    Attributes:
        store: paths and functions of the run.
        data: the rows.
        epochs: how often the rows are learnt.
        verbose: 0 prints nothing.
        seed: for random generators; None for none.
        use_gpu: whether to use GPUs.
        checkpoint: of the earlier training that this one continues.
        progress: whether rank 0 reports each batch to the driver.
    """

    store: RemoteStore
    data: Data
    epochs: int
    verbose: int
    seed: Optional[int]
    use_gpu: bool
    checkpoint: Optional[bytes]
    progress: bool = False
