"""A plain model of PyTorch, with its optimizer and losses, as a LightningModule."""

from __future__ import annotations

from typing import Any, Sequence

from horovod.spark.lightning import _package
from horovod.spark.torch._rows import Rows
from horovod.spark.torch._training import name_of


class _Converted(_package.Open):
    """It logs ``loss`` and each metric, and for validation ``val_loss`` and so on.

    Args:
        model: the user's.
        optimizer: of its parameters.
        losses: of outputs, labels and weights.
        metrics: functions of an output and its label.
        rows: turns columns into tensors.
    """

    def __init__(self, model: Any, optimizer: Any, losses: Any, metrics: Sequence[Any], rows: Rows) -> None:
        super().__init__()
        self.model = model
        self._optimizer = optimizer
        self._losses = losses
        self._metrics = metrics
        self._rows = rows

    def forward(self, *inputs: Any) -> Any:
        """Call the user's model."""
        return self.model(*inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The loss of a batch."""
        return self._step(batch, "")

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """The same."""
        return self._step(batch, "val_")

    def configure_optimizers(self) -> Any:
        """The user's optimizer."""
        return self._optimizer

    def _step(self, batch: Any, prefix: str) -> Any:
        data = self._rows.data
        labels = [batch[name] for name in data.labels]
        weights = None if data.weight is None else batch[data.weight]
        outputs, labels = self._rows.shaped(self.model(*(batch[name] for name in data.features)), labels)
        loss = self._losses(outputs, labels, weights)
        told = {"loss": loss.detach()}
        for metric in self._metrics:
            for label, output, wanted in zip(data.labels, outputs, labels):
                name = name_of(metric) if len(data.labels) == 1 else f"{label}_{name_of(metric)}"
                told[name] = metric(output.detach(), wanted)
        for name, value in told.items():
            self.log(prefix + name, value, on_step=False, on_epoch=True, batch_size=len(outputs[0]), sync_dist=True)
        return loss


def make(package: Any, *args: Any) -> Any:
    """The model as a LightningModule of the package."""
    return _package.derive(_Converted, package.LightningModule)(*args)
