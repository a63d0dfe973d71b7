"""Training PyTorch models on the rows of a data frame.

>>> import torch
>>> from horovod.spark.common.store import Store
>>> from horovod.spark.torch import TorchEstimator
>>> model = torch.nn.Linear(2, 1)
>>> estimator = TorchEstimator(
...     model=model,
...     optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
...     loss=torch.nn.functional.mse_loss,
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

import copy
from typing import Any, Callable, Mapping, Optional

import torch
from pyspark.ml.param import TypeConverters

from horovod.spark.common import _given, util
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import accessors, param, to_function
from horovod.spark.torch import _devices, _rows, _training
from horovod.spark.torch._loss import Losses
from horovod.spark.torch.datamodule import ParquetDataModule


@accessors()
class TorchEstimator(HorovodEstimator):
    """Trains a PyTorch model on the rows of a data frame, in several processes.

    The learning rate is multiplied by their number. An epoch has each row once, unless ``train_steps_per_epoch`` says
    otherwise. After each epoch the run's folder in the store gets a checkpoint, ``{"model": ..., "optimizer": ...}``. A
    training with the ``run_id`` of an earlier one continues from its checkpoint.

    Args:
        params: parameters by name: those of all estimators (docs/spark_estimators.md), and these:

            - ``input_shapes``: the shape of each feature, of a row or with -1 for the rows of a batch.
            - ``loss_constructors``: functions that make the loss functions, in place of ``loss``.
            - ``train_minibatch_fn``: learns one batch, in place of
              :func:`horovod.spark.torch.minibatch`, which see.

    Raises:
        TypeError: there is no such parameter.
        ValueError: at ``fit``: parameters are missing, or make no sense.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> estimator = TorchEstimator(
        ...     model=model,
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        ...     loss=torch.nn.functional.mse_loss,
        ...     feature_cols=["x"],
        ...     label_cols=["y"],
        ...     input_shapes=[[-1, 1]],
        ...     store=store,
        ...     num_proc=2,
        ...     verbose=0,
        ... )
        >>> estimator.fit(df).transform(df).columns
        ['x', 'y', 'y__output']
    """

    input_shapes = param("input_shapes", "the shape of each feature, of a row or a batch", TypeConverters.toList)
    loss_constructors = param("loss_constructors", "functions that make the loss functions")
    train_minibatch_fn = param("train_minibatch_fn", "learns one batch", to_function)

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(input_shapes=None, loss_constructors=None, train_minibatch_fn=None)
        self._take(params)

    def _needed(self) -> tuple[str, ...]:
        return ("optimizer",) if self._value("loss_constructors") else ("optimizer", "loss")

    def _check_framework(self) -> None:
        if not isinstance(self._value("model"), torch.nn.Module):
            raise ValueError(f"model={type(self._value('model')).__name__}: a torch.nn.Module is needed")
        _devices.check(self._value("model"))
        optimizer = self._value("optimizer")
        if "optimizer" in self._needed() and not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"optimizer={optimizer!r}: a torch.optim.Optimizer of the model is needed")
        own = set(map(id, self._value("model").parameters()))
        if optimizer is not None and not own.issuperset(map(id, _parameters(optimizer))):
            raise ValueError("the optimizer has parameters that are not the model's: make it of model.parameters()")
        if self._value("loss") and self._value("loss_constructors"):
            raise ValueError('At most one of parameters "loss" and "loss_constructors" may be specified')
        self._check_callbacks()
        if self._value("tensorflow_dataset_prefetch_buffer_size"):
            raise ValueError("tensorflow_dataset_prefetch_buffer_size is for Keras: leave it out")
        _given.shapes("input_shapes", self._value("input_shapes"), "feature_cols", self._value("feature_cols"))
        _given.functions("metrics", self._value("metrics"))
        if not self._needed():
            return
        for name in ("loss", "loss_constructors"):
            _given.functions(name, _list(self._value(name) or []))
        labels = len(self._value("label_cols"))
        for name, count in (
            ("loss", len(self._losses().functions)),
            ("loss_weights", len(self._value("loss_weights") or [0] * labels)),
        ):
            if count != labels:
                raise ValueError(f"{name} has {count} parts, but there are {labels} label columns")

    def _check_callbacks(self) -> None:
        if self._value("callbacks"):
            raise ValueError("callbacks are for Keras and Lightning: leave them out")

    def _losses(self) -> Losses:
        constructors = self._value("loss_constructors")
        chosen = [make() for make in _list(constructors)] if constructors else _list(self._value("loss"))
        return Losses(chosen, self._value("loss_weights"))

    def _check_columns(self, columns: dict[str, dict[str, Any]]) -> None:
        util.check_shape_compatibility(
            columns,
            self._value("feature_cols"),
            self._value("label_cols"),
            input_shapes=self._value("input_shapes"),
            label_shapes=self._value("label_shapes"),
        )

    def _data_module(self) -> Any:
        return ParquetDataModule

    def _function(self) -> Any:
        model, optimizer = _devices.on_cpu(self._value("model"), self._value("optimizer"))
        return _training.Trainer(
            model=model,
            optimizer=optimizer,
            losses=self._losses(),
            metrics=self._value("metrics"),
            input_shapes=self._value("input_shapes"),
            label_shapes=self._value("label_shapes"),
            compression=self._value("gradient_compression"),
            passes=self._value("backward_passes_per_step"),
            minibatch=self._value("train_minibatch_fn"),
        )

    def _trained(self, result: Any, run_id: str, columns: Mapping[str, Any]) -> TorchModel:
        model = copy.deepcopy(self._value("model"))
        model.load_state_dict(_training.load(result.state))
        return TorchModel(
            history=result.history,
            model=model,
            feature_columns=self._value("feature_cols"),
            label_columns=self._value("label_cols"),
            input_shapes=self._value("input_shapes"),
            run_id=run_id,
            optimizer=self._value("optimizer"),
            loss=self._value("loss"),
            loss_constructors=self._value("loss_constructors"),
            _metadata=dict(columns),
            _sizes=result.sizes,
        )


@accessors()
class TorchModel(HorovodModel):
    """A trained PyTorch model: ``transform(df)`` adds its outputs to a data frame, ``getModel()`` is the module.

    Args:
        params: parameters by name: ``model``, ``feature_columns``, ``label_columns``, ``output_cols`` (by default
            ``<label>__output``), ``input_shapes``, ``history``, ``run_id``, ``optimizer``, ``loss``,
            ``loss_constructors``.

    Raises:
        TypeError: there is no such parameter.

    Example:
        >>> trained = TorchModel(model=torch.nn.Linear(1, 1), feature_columns=["x"], label_columns=["y"])
        >>> trained.setOutputCols(["guess"]).getOutputCols()
        ['guess']
    """

    input_shapes = param("input_shapes", "the shape of each feature, of a row or a batch", TypeConverters.toList)
    optimizer = param("optimizer", "the optimizer of the training")
    loss = param("loss", "the loss of the training")
    loss_constructors = param("loss_constructors", "what made the loss of the training")
    _sizes = param("_sizes", "how many numbers each output has for a row")

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(input_shapes=None, optimizer=None, loss=None, loss_constructors=None, _sizes=None)
        self._take(params)

    def _output_sizes(self) -> list[int]:
        sizes = self.getOrDefault("_sizes")
        if sizes is None:
            raise ValueError("the sizes of the outputs are not known: forward() has not run on the feature columns")
        return list(sizes)

    def _predictor(self) -> Callable[[], Any]:
        model, _ = _devices.on_cpu(self.getOrDefault("model"))
        return _Predictor(model, self.getOrDefault("feature_columns"), self.getOrDefault("input_shapes"))


class _Predictor:
    """Makes, in a task of Spark, the function that computes outputs."""

    def __init__(self, model: Any, features: list[str], shapes: Optional[Any]) -> None:
        self._model = model
        self._features = features
        self._shapes = shapes or [None] * len(features)

    def __call__(self) -> Callable[[Mapping[str, Any]], list[Any]]:
        self._model.eval()

        def predict(rows: Mapping[str, Any]) -> list[Any]:
            inputs = [_rows.tensor(rows[name], shape) for name, shape in zip(self._features, self._shapes)]
            return _training.outputs_of(self._model, inputs)

        return predict


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
