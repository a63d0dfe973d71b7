"""The loss of a model with several outputs, with rows of different weights."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import warnings
from typing import Any, Iterator, Optional, Sequence

import torch


@dataclasses.dataclass(frozen=True)
class Losses:
    """The sum of each output's loss by its weight.

    Attributes:
        functions: of an output and its label, such as ``torch.nn.functional.mse_loss`` or ``torch.nn.MSELoss()``. If
            rows have weights, they need a parameter or attribute ``reduction``.
        weights: of the outputs; None for 1 each.
    """

    functions: Sequence[Any]
    weights: Optional[Sequence[float]]

    def __call__(self, outputs: Sequence[Any], labels: Sequence[Any], sample_weights: Any = None) -> Any:
        """The loss of a batch, as a scalar tensor.

        Raises:
            ValueError: a label does not fit its output.
        """
        weights = self.weights or [1.0] * len(self.functions)
        total = torch.zeros((), device=outputs[0].device)
        for function, output, label, weight in zip(self.functions, outputs, labels, weights):
            with _fitting(output, label):
                if sample_weights is None:
                    loss = function(output, label)
                else:
                    loss = _by_rows(function, output, label) * _of_rows(sample_weights, len(output)).to(output.dtype)
            total = total + loss.mean() * weight
        return total


@contextlib.contextmanager
def _fitting(output: Any, label: Any) -> Iterator[None]:
    """Turn the warning that PyTorch's losses give for a label of another shape into an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size", UserWarning)
        try:
            yield
        except UserWarning as e:
            raise ValueError(
                f"a batch's label has the shape {tuple(label.shape)}, which does not fit the model's output of the "
                f"shape {tuple(output.shape)}: change the model, or give label_shapes"
            ) from e


def _of_rows(weights: Any, rows: int) -> Any:
    """The weights as one number for each row. A column of one-element arrays would be broadcast over the rows."""
    if weights.numel() != rows:
        raise ValueError(
            f"a batch's weights have the shape {tuple(weights.shape)}: one number for each of its {rows} rows is needed"
        )
    return weights.reshape(rows)


def _by_rows(function: Any, output: Any, label: Any) -> Any:
    """The loss of each row."""
    if isinstance(function, torch.nn.Module):
        before = getattr(function, "reduction", None)
        if before is None:
            raise ValueError(f"{type(function).__name__} has no reduction: rows with weights need a loss that has it")
        function.reduction = "none"
        try:
            losses = function(output, label)
        finally:
            function.reduction = before
    elif "reduction" in inspect.signature(function).parameters:
        losses = function(output, label, reduction="none")
    else:
        raise ValueError(f"{function.__name__} has no parameter reduction: rows with weights need a loss that has it")
    return losses.reshape(len(output), -1).mean(dim=1)
