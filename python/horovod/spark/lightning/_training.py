"""The work of each process of a Lightning estimator."""

from __future__ import annotations

import copy
import dataclasses
import logging
from typing import Any, Mapping, Optional, Sequence

from horovod.spark.common._training import Training
from horovod.spark.lightning import _converted, _following, _package, _strategy
from horovod.spark.lightning._even import Even
from horovod.spark.torch._loss import Losses
from horovod.spark.torch._rows import Rows
from horovod.spark.torch._training import Result, choose_device, dump, outputs_of


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A training: call it in each process. Model and optimizer are pickled together, so that they share parameters.

    Attributes:
        model: a LightningModule, or another module, with optimizer, losses and metrics.
        optimizer: None for a LightningModule.
        losses: the same.
        metrics: functions of an output and its label.
        input_shapes: the shape of each feature.
        label_shapes: the shape of each label.
        compression: of gradients.
        passes: batches for each step.
        callbacks: the user's.
        logger: the user's; None for one that writes to the run's folder.
        terminate_on_nan: whether numbers that are not finite end the training.
        queues: arguments for the data module.
        settings: arguments for Lightning's Trainer.
    """

    model: Any
    optimizer: Any
    losses: Optional[Losses]
    metrics: Sequence[Any]
    input_shapes: Optional[Sequence[Sequence[int]]]
    label_shapes: Optional[Sequence[Sequence[int]]]
    compression: Any
    passes: int
    callbacks: Sequence[Any]
    logger: Any
    terminate_on_nan: bool
    queues: Mapping[str, Any]
    settings: Mapping[str, Any]

    def __call__(self, training: Training) -> Optional[Result]:
        """Train, and return the result on rank 0."""
        import horovod.torch as hvd

        hvd.init()
        package = _package.of(self.model) or _package.preferred()
        _quieten(package, training.verbose, hvd.rank())
        if training.seed is not None:
            package.seed_everything(training.seed, workers=True)
        device = choose_device(training.use_gpu, hvd)
        rows = Rows(training.data, self.input_shapes, self.label_shapes)
        module = self._module(package, rows)
        earlier = None
        if training.checkpoint is not None:
            earlier = _strategy.Earlier(training.checkpoint, f"{training.store.checkpoint_path}")
        strategy = _strategy.make(package, hvd, device, self.compression, self.terminate_on_nan, earlier)
        with training.store.get_local_output_dir() as folder, _strategy.process_group(hvd.size()):
            following = _following.make(package, training, hvd, folder, self.terminate_on_nan)
            trainer = self._trainer(package, training, strategy, following, folder)
            path = earlier.path if earlier is not None else None
            trainer.fit(module, datamodule=self._data(training, rows, strategy, hvd), ckpt_path=path)
            following.sync()
        if hvd.rank() != 0:
            return None
        trained = (module if module is self.model else module.model).cpu()
        return Result(following.history, dump(trained.state_dict()), _sizes(trained, following.inputs))

    def _module(self, package: Any, rows: Rows) -> Any:
        if self.losses is None:
            return self.model
        return _converted.make(package, self.model, self.optimizer, self.losses, self.metrics, rows)

    def _data(self, training: Training, rows: Rows, strategy: Any, hvd: Any) -> Any:
        """The data module. Ours gives all processes the same number of batches; a user's is told how many to give."""
        data = training.data
        if not data.own:
            return data.open(training, hvd.rank(), hvd.size(), data.steps(hvd.size()))

        def even(batches: Any, training_rows: bool) -> Even:
            steps = data.train_steps if training_rows else data.val_steps
            made = Even(batches, hvd, known=steps is not None or not data.transformation)
            if training_rows:
                strategy.even = made
            return made

        further = {**self.queues, "convert": rows.columns, "even": even}
        return data.open(training, hvd.rank(), hvd.size(), (data.train_steps, data.val_steps), **further)

    def _trainer(self, package: Any, training: Training, strategy: Any, following: Any, folder: str) -> Any:
        """Lightning's Trainer."""
        settings = {
            "accumulate_grad_batches": self.passes,
            "default_root_dir": folder,
            "enable_model_summary": training.verbose > 1,
            "enable_progress_bar": False,
            "num_sanity_val_steps": 0,
            **self.settings,
        }
        return package.Trainer(
            strategy=strategy,
            accelerator="gpu" if strategy.root_device.type == "cuda" else "cpu",
            devices=[strategy.root_device.index] if strategy.root_device.type == "cuda" else 1,
            max_epochs=training.epochs + (strategy.earlier.epochs if strategy.earlier is not None else 0),
            callbacks=[*(_kept_in(folder, callback) for callback in self.callbacks), following],
            logger=self._logger(package, training, folder) if self.logger is None else self.logger,
            use_distributed_sampler=False,
            **settings,
        )

    def _logger(self, package: Any, training: Training, folder: str) -> Any:
        """The logger for the run's folder: TensorBoard if it is installed, otherwise a table."""
        if not training.store.saving_runs:
            return False
        where = {"save_dir": folder, "name": training.store.logs_subdir, "version": ""}
        try:
            return package.loggers.TensorBoardLogger(**where)
        except ModuleNotFoundError:
            return package.loggers.CSVLogger(**where)


def _kept_in(folder: str, callback: Any) -> Any:
    """The callback; if it is a ModelCheckpoint without a folder, one that saves in the run's folder."""
    if getattr(callback, "dirpath", folder) is not None:
        return callback
    other = copy.copy(callback)
    other.dirpath = folder
    return other


def _quieten(package: Any, verbose: int, rank: int) -> None:
    """Let Lightning print each message only once, on rank 0, and its advice about devices only with verbose=2."""
    from lightning_utilities.core.rank_zero import rank_zero_only

    rank_zero_only.rank = rank
    level = logging.INFO if verbose > 1 else logging.WARNING if verbose else logging.ERROR
    for name in (package.__name__, "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(level)


def _sizes(model: Any, inputs: Optional[Sequence[Any]]) -> Optional[list[int]]:
    """How many numbers each output has for a row; None if the model's ``forward`` does not take the features."""
    if inputs is None:
        return None
    model.eval()
    try:
        return [output[0].size for output in outputs_of(model, inputs)]
    except Exception as e:
        print(f"transform() will not work, for forward() fails on the features: {type(e).__name__}: {e}", flush=True)
        return None
