"""Batches as data sets of TensorFlow for an estimator's training processes."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import numpy as np
import tensorflow as tf

from horovod.spark.common._loader import Loader
from horovod.spark.common.datamodule import DataModule, NVTabularDataModule
from horovod.spark.common.datamodule import ParquetDataModule as _ParquetDataModule
from horovod.spark.common.reader import ParquetReader

__all__ = ["DataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]


class ParquetDataModule(_ParquetDataModule):
    """Batches from Parquet files, as a ``tf.data.Dataset`` of dictionaries by column.

    If ``steps_per_epoch_train`` or ``steps_per_epoch_val`` is a number, the data set has no end; give Keras the same
    number. If it is None, each iteration has each row of this process once.

    Example:
        >>> with ParquetDataModule(train_dir, val_dir, train_batch_size=64, steps_per_epoch_train=10) as data:
        ...     rows = data.train_data().map(lambda row: (row["x"][:, None], row["y"]))
        ...     told = model.fit(rows, steps_per_epoch=10, epochs=2, verbose=0)
    """

    def _loader(self, reader: ParquetReader, steps: Optional[int]) -> Any:
        loader = Loader(reader, steps)

        def batches() -> Iterator[Any]:
            yield from loader
            while steps is not None:
                yield from loader

        signature = {name: _signature(array) for name, array in reader.sample().items()}
        return tf.data.Dataset.from_generator(batches, output_signature=signature)


PetastormDataModule = ParquetDataModule
"""Horovod's name for the data module that reads Parquet. Petastorm takes no part."""


def _signature(array: np.ndarray) -> tf.TensorSpec:
    kind = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    return tf.TensorSpec((None, *array.shape[1:]), kind)
