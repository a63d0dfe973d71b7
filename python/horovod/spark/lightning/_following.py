"""What accompanies a training: its history, the bar at the driver, and the checkpoint after each epoch."""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence

import torch

from horovod.spark.common import _progress
from horovod.spark.common._training import Training
from horovod.spark.lightning import _package


class _Following(_package.Open):
    """The last of the callbacks, in each process.

    Args:
        training: has the store.
        hvd: ``horovod.torch``.
        folder: this process's folder, which rank 0 copies to the store.
        check: whether parameters that are not finite end the training.
    """

    def __init__(self, training: Training, hvd: Any, folder: str, check: bool) -> None:
        super().__init__()
        self._training = training
        self._hvd = hvd
        self._folder = folder
        self._check = check
        steps = training.data.steps(hvd.size())[0]
        self._told = _progress.Teller(training.progress and hvd.rank() == 0, training.epochs, steps)
        self.history: list[dict[str, Any]] = []
        self.inputs: Optional[Sequence[Any]] = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Keep some rows, to find the shapes of the outputs later."""
        features = self._training.data.features
        if self.inputs is None and isinstance(batch, dict) and all(name in batch for name in features):
            self.inputs = [batch[name][:2].detach().cpu().clone() for name in features]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report to the driver, and check the parameters if that is wanted."""
        self._told.step(len(self.history), batch_idx)
        if self._check:
            for name, parameter in pl_module.named_parameters():
                if not torch.isfinite(parameter).all():
                    raise ValueError(f"terminate_on_nan: {name} has values that are no finite numbers")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Note the logged values, averaged over the processes, and save."""
        found = {name: float(value) for name, value in trainer.callback_metrics.items()}
        seen = self._hvd.allgather_object(found, name="spark.logged")
        names = list(dict.fromkeys(name for one in seen for name in one))
        told = {name: _mean([one[name] for one in seen if name in one]) for name in names}
        self.history.append({"epoch": len(self.history), **told})
        if self._training.verbose and self._hvd.rank() == 0:
            values = ", ".join(f"{name} {value:.4g}" for name, value in told.items())
            print(f"epoch {len(self.history)}/{self._training.epochs}: {values}", flush=True)
        if self._training.store.saving_runs:
            trainer.save_checkpoint(os.path.join(self._folder, self._training.store.checkpoint_filename))
            self.sync()

    def sync(self) -> None:
        """Copy new files to the store."""
        if self._hvd.rank() == 0 and self._training.store.saving_runs:
            self._training.store.sync(self._folder)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def make(package: Any, *args: Any) -> Any:
    """The callback for the package's Trainer. It counts as one of Lightning's for checkpoints, so it runs last."""
    return _package.derive(_Following, package.callbacks.Checkpoint)(*args)
