"""Turns rows by column into a model's inputs and labels: tensors of suitable shapes and types."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Sequence

import torch

from horovod.spark.common import _given
from horovod.spark.common._training import Data


@dataclasses.dataclass(frozen=True)
class Rows:
    """Turns columns into tensors.

    Attributes:
        data: has the columns.
        input_shapes: the shape of each feature, of a row or with -1 for the rows of a batch; None: the column's shape.
        label_shapes: the same for the labels.
        device: the device for the tensors.
    """

    data: Data
    input_shapes: Optional[Sequence[Any]]
    label_shapes: Optional[Sequence[Any]]
    device: Any = "cpu"

    def prepare(self, batch: Mapping[str, Any]) -> tuple[list[Any], list[Any], Any]:
        """The inputs, the labels, and the rows' weights or None, of a batch of a data module."""
        data = self.data
        data.check(batch)
        shapes: Sequence[Any] = self.input_shapes or [None] * len(data.features)
        inputs = [self._tensor(batch, name, shape) for name, shape in zip(data.features, shapes)]
        shapes = self.label_shapes or [None] * len(data.labels)
        labels = [_label(self._tensor(batch, name, shape)) for name, shape in zip(data.labels, shapes)]
        return inputs, labels, None if data.weight is None else self._tensor(batch, data.weight, None)

    def columns(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The same by column. Columns that are neither input nor label stay as they are."""
        inputs, labels, weights = self.prepare(batch)
        whole = {**batch, **dict(zip(self.data.labels, labels)), **dict(zip(self.data.features, inputs))}
        return whole if weights is None else {**whole, str(self.data.weight): weights}

    def shaped(self, outputs: Any, labels: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs as a list; and the labels, in the shape and type of the outputs if they have as many elements."""
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if len(outputs) != len(labels):
            raise ValueError(f"the model has {len(outputs)} outputs, but there are {len(labels)} label columns")
        if self.label_shapes is None:
            labels = [
                label.reshape(output.shape).to(output.dtype) if output.numel() == label.numel() else label
                for output, label in zip(outputs, labels)
            ]
        return outputs, list(labels)

    def _tensor(self, batch: Mapping[str, Any], name: str, shape: Optional[Sequence[int]]) -> torch.Tensor:
        return tensor(self.data.whole(name, batch[name].numpy()), shape).to(self.device)


def tensor(values: Any, shape: Optional[Sequence[int]]) -> torch.Tensor:
    """A tensor from a numpy array. Floating-point numbers get PyTorch's default type."""
    made = torch.from_numpy(values)
    if made.is_floating_point():
        made = made.to(torch.get_default_dtype())
    return made if shape is None else made.reshape(_given.of_batch(shape))


def _label(values: torch.Tensor) -> torch.Tensor:
    """PyTorch's losses expect classes as int64."""
    return values.long() if values.dtype in (torch.int8, torch.int16, torch.int32, torch.uint8) else values
