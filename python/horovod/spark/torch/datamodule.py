"""Batches of tensors of PyTorch for an estimator's training processes."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import torch

from horovod.spark.common._loader import Loader
from horovod.spark.common.datamodule import DataModule, NVTabularDataModule
from horovod.spark.common.datamodule import ParquetDataModule as _ParquetDataModule
from horovod.spark.common.reader import ParquetReader

__all__ = ["DataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]

_WIDER = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}  # torch lacks operations for the former


class ParquetDataModule(_ParquetDataModule):
    """Batches from Parquet files: dictionaries of tensors by column.

    An epoch's last batch never has a single row, with which batch normalization cannot train: it joins the batch
    before.

    Example:
        >>> with ParquetDataModule(train_dir, val_dir, train_batch_size=64, steps_per_epoch_train=None) as data:
        ...     for batch in data.train_data():
        ...         loss = torch.nn.functional.mse_loss(2 * batch["x"], batch["y"].float())
    """

    def _loader(self, reader: ParquetReader, steps: Optional[int]) -> Any:
        return Loader(reader, steps, to_tensors, single=False)


PetastormDataModule = ParquetDataModule
"""Horovod's name for the data module that reads Parquet. Petastorm takes no part."""


def to_tensors(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays as tensors, which take over their memory.

    Raises:
        TypeError: names a column that has no numbers.
    """
    return {name: _tensor(name, array) for name, array in batch.items()}


def _tensor(name: str, array: np.ndarray) -> torch.Tensor:
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"column {name!r} has values of the type {array.dtype}, of which PyTorch makes no tensor: leave it out, or "
            "turn it into numbers (transformation_fn)"
        )
    return torch.from_numpy(array.astype(_WIDER.get(array.dtype.name, array.dtype), copy=False))
