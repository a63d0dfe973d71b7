"""Training LightningModules on the rows of a data frame.

>>> import pytorch_lightning as pl
>>> import torch
>>> from horovod.spark.common.store import Store
>>> from horovod.spark.lightning import TorchEstimator
>>> class Line(pl.LightningModule):
...     def __init__(self):
...         super().__init__()
...         self.layer = torch.nn.Linear(2, 1)
...     def forward(self, features):
...         return self.layer(features)
...     def training_step(self, batch, batch_idx):
...         loss = torch.nn.functional.mse_loss(self(batch["features"]).flatten(), batch["y"])
...         self.log("loss", loss)
...         return loss
...     def configure_optimizers(self):
...         return torch.optim.SGD(self.parameters(), lr=0.01)
>>> estimator = TorchEstimator(
...     model=Line(),
...     feature_cols=["features"],
...     label_cols=["y"],
...     store=Store.create("/tmp/horovod"),
...     num_proc=2,
...     epochs=5,
... )
>>> trained = estimator.fit(df)
>>> trained.transform(df).select("y", "y__output").show()
"""

from __future__ import annotations

import warnings
from typing import Any, Optional

from pyspark.ml.param import TypeConverters

from horovod.spark.common import datamodule as common_datamodule
from horovod.spark.common.params import accessors, param
from horovod.spark.lightning import _package, _training, datamodule
from horovod.spark.lightning._package import MIN_PL_VERSION as MIN_PL_VERSION
from horovod.spark.torch import _devices
from horovod.spark.torch.estimator import TorchEstimator as _TorchEstimator
from horovod.spark.torch.estimator import TorchModel as TorchModel


@accessors()
class TorchEstimator(_TorchEstimator):
    """Trains a LightningModule, or a plain PyTorch model, on the rows of a data frame, in several processes.

    A batch is a dictionary of tensors by column. The learning rates from ``configure_optimizers`` are multiplied by the
    number of processes, and gradients are averaged. An epoch has each row once, unless ``train_steps_per_epoch`` says
    otherwise. After each epoch the run's folder in the store gets a checkpoint of Lightning; a training with the
    ``run_id`` of an earlier one continues from it. The model's history is a list of dictionaries of the logged values,
    one for each epoch.

    Args:
        params: parameters by name: those of all estimators (docs/spark_estimators.md), and these:

            - ``model``: a LightningModule, or another module with ``optimizer``, ``loss`` and ``metrics``.
            - ``input_shapes``: the shape of each feature, of a row or with -1 for the rows of a batch.
            - ``loss_constructors``: functions that make the loss functions, in place of ``loss``.
            - ``callbacks``: Lightning's, on every process.
            - ``logger``: Lightning's, or False; without it the run's folder in the store gets the logs.
            - ``log_every_n_steps``: 50.
            - ``profiler``: Lightning's, or its name.
            - ``trainer_args``: further arguments for Lightning's Trainer.
            - ``terminate_on_nan``: whether numbers that are not finite end the training.
            - ``num_gpus``: of each process: 1, or 0 for none.
            - ``data_module``: a class of LightningDataModules that takes the arguments of DataModule.
            - ``loader_num_epochs``: at least ``epochs``; it changes nothing.
            - ``train_async_data_loader_queue_size``, ``val_async_data_loader_queue_size``: how many batches a thread
              makes ahead.
            - ``debug_data_loader``: whether to tell how many of these were ready.

    Raises:
        TypeError: there is no such parameter.
        ValueError: at ``fit``: parameters are missing, or make no sense.

    Example:
        >>> estimator = TorchEstimator(model=line, feature_cols=["x"], label_cols=["y"], store=store)
        >>> estimator.setTrainerArgs({"gradient_clip_val": 1.0}).getLogEveryNSteps()
        50
    """

    num_gpus = param("num_gpus", "GPUs of each process", TypeConverters.toInt)
    logger = param("logger", "Lightning's logger, or False")
    log_every_n_steps = param("log_every_n_steps", "steps between lines of the log", TypeConverters.toInt)
    loader_num_epochs = param("loader_num_epochs", "how often the rows are read", TypeConverters.toInt)
    terminate_on_nan = param("terminate_on_nan", "end at numbers that are not finite", TypeConverters.toBoolean)
    profiler = param("profiler", "Lightning's profiler, or its name")
    trainer_args = param("trainer_args", "further arguments for Lightning's Trainer")
    debug_data_loader = param("debug_data_loader", "tell how many batches were ready", TypeConverters.toBoolean)
    train_async_data_loader_queue_size = param(
        "train_async_data_loader_queue_size", "batches that a thread makes ahead", TypeConverters.toInt
    )
    val_async_data_loader_queue_size = param(
        "val_async_data_loader_queue_size", "the same for validation", TypeConverters.toInt
    )

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(
            num_gpus=None,
            logger=None,
            log_every_n_steps=50,
            loader_num_epochs=None,
            terminate_on_nan=False,
            profiler=None,
            trainer_args=None,
            debug_data_loader=False,
            train_async_data_loader_queue_size=None,
            val_async_data_loader_queue_size=None,
        )
        self._take(params)

    def _package(self) -> Optional[Any]:
        """The package of the LightningModule; None if the model is another module."""
        return _package.of(self._value("model"))

    def _needed(self) -> tuple[str, ...]:
        return () if self._package() else super()._needed()

    def _check_framework(self) -> None:
        if self._package():
            for name in ("optimizer", "loss", "loss_constructors", "loss_weights", "metrics"):
                if self._value(name):
                    raise ValueError(f"{name} is for other models: a LightningModule has its own, so leave it out")
        if self._value("train_minibatch_fn") is not None:
            raise ValueError("train_minibatch_fn is for horovod.spark.torch: write a training_step")
        super()._check_framework()
        self._check_trainer()

    def _check_callbacks(self) -> None:
        """Lightning looks at them."""

    def _check_trainer(self) -> None:
        for name in self._value("trainer_args") or {}:
            if name in _OWN:
                raise ValueError(f"trainer_args has {name!r}: {_OWN[name]}")
        epochs = self._value("loader_num_epochs")
        if epochs is not None:
            if epochs < self._value("epochs"):
                raise ValueError(f"loader_num_epochs={epochs}: there are more epochs, {self._value('epochs')}")
            warnings.warn("loader_num_epochs changes nothing: each epoch reads the rows once", stacklevel=5)
        if self._value("data_module") not in (None, self._data_module(), common_datamodule.ParquetDataModule):
            for name in _QUEUES:
                if self._value(name):
                    raise ValueError(f"{name} is for the estimator's own data module: leave it or data_module out")
        if (self._value("num_gpus") or 0) > 1:
            raise ValueError(f"num_gpus={self._value('num_gpus')}: a process has one GPU; give a larger num_proc")

    def _data_module(self) -> Any:
        package = self._package()
        if package is None or package is _package.preferred():
            return datamodule.ParquetDataModule
        return datamodule.of(package)

    def _use_gpu(self) -> bool:
        return super()._use_gpu() and self._value("num_gpus") != 0

    def _function(self) -> Any:
        plain = self._package() is None
        model, optimizer = _devices.on_cpu(self._value("model"), self._value("optimizer"))
        return _training.Trainer(
            model=model,
            optimizer=optimizer,
            losses=self._losses() if plain else None,
            metrics=self._value("metrics"),
            input_shapes=self._value("input_shapes"),
            label_shapes=self._value("label_shapes"),
            compression=self._value("gradient_compression"),
            passes=self._value("backward_passes_per_step"),
            callbacks=self._value("callbacks"),
            logger=self._value("logger"),
            terminate_on_nan=self._value("terminate_on_nan"),
            queues={name: self._value(name) for name in _QUEUES},
            settings={
                "log_every_n_steps": self._value("log_every_n_steps"),
                "profiler": self._value("profiler"),
                **(self._value("trainer_args") or {}),
            },
        )


_QUEUES = ("debug_data_loader", "train_async_data_loader_queue_size", "val_async_data_loader_queue_size")
_PROCESSES = "the estimator decides it"
_OWN = {
    **dict.fromkeys(("strategy", "accelerator", "devices", "num_nodes", "use_distributed_sampler"), _PROCESSES),
    **{name: f"give the parameter {name}" for name in ("callbacks", "logger", "log_every_n_steps", "profiler")},
    "max_epochs": "give the parameter epochs",
    "accumulate_grad_batches": "give the parameter backward_passes_per_step",
}
