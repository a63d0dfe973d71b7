"""Training Keras models on the rows of a data frame.

>>> import tensorflow as tf
>>> from horovod.spark.common.store import Store
>>> from horovod.spark.keras import KerasEstimator
>>> estimator = KerasEstimator(
...     model=tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)]),
...     optimizer=tf.keras.optimizers.SGD(0.01),
...     loss="mse",
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

import math
from typing import Any, Callable, Mapping

import tensorflow as tf

from horovod.spark.common import util
from horovod.spark.common.estimator import HorovodEstimator, HorovodModel
from horovod.spark.common.params import accessors, param
from horovod.spark.keras import _saving, _training
from horovod.spark.keras.datamodule import ParquetDataModule


@accessors()
class KerasEstimator(HorovodEstimator):
    """Trains a Keras model (``tf.keras``) on the rows of a data frame, in several processes.

    The learning rate is multiplied by their number, unless it follows a schedule. An epoch has as many batches on each
    process as the rows need, rounded up, so a few rows may come twice. After each epoch the run's folder in the store
    gets a checkpoint, a ``.keras`` file. A training with the ``run_id`` of an earlier one continues from its
    checkpoint.

    Args:
        params: parameters by name: those of all estimators (docs/spark_estimators.md), and these:

            - ``custom_objects``: classes and functions of yours that the model consists of, by name.
            - ``checkpoint_callback``: a BestModelCheckpoint of ``horovod.tensorflow.keras.callbacks``: the best epoch's
              model counts, not the last one's.
            - ``backend_env``: variables of the processes; by default ``LIBHDFS_OPTS``.

    Raises:
        TypeError: there is no such parameter.
        ValueError: at ``fit``: parameters are missing, or make no sense.

    Example:
        >>> estimator = KerasEstimator(
        ...     model=tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)]),
        ...     optimizer="sgd",
        ...     loss="mse",
        ...     feature_cols=["x"],
        ...     label_cols=["y"],
        ...     store=store,
        ... )
        >>> estimator.setBatchSize(64).getBatchSize()
        64
    """

    custom_objects = param("custom_objects", "classes and functions of the user's, by name")
    checkpoint_callback = param("checkpoint_callback", "which epoch's model counts")
    backend_env = param("backend_env", "variables of the processes")

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(
            custom_objects={}, checkpoint_callback=None, backend_env={"LIBHDFS_OPTS": "-Xms2048m -Xmx2048m"}
        )
        self._take(params)

    def _check_framework(self) -> None:
        model = self._value("model")
        if not isinstance(model, tf.keras.Model):
            raise ValueError(f"model={type(model).__name__}: a tf.keras.Model is needed")
        if not model.built or not model.inputs:
            raise ValueError("the model must know the shape of its inputs: begin it with tf.keras.Input")
        for what, wanted in (("feature_cols", model.inputs), ("label_cols", model.outputs)):
            if len(self._value(what)) != len(wanted):
                names = "inputs" if what == "feature_cols" else "outputs"
                raise ValueError(f"the model has {len(wanted)} {names}, but {what} are {self._value(what)}")

    def _texts(self) -> list[str]:
        return [*self._value("feature_cols"), *self._value("label_cols")]

    def _check_columns(self, columns: dict[str, dict[str, Any]]) -> None:
        model = self._value("model")
        util.check_shape_compatibility(
            columns, self._value("feature_cols"), self._value("label_cols"), _saving.shapes(model.input_shape)
        )

    def _environment(self) -> dict[str, str]:
        return dict(self._value("backend_env") or {})

    def _for_pickle(self, objects: dict[str, Any]) -> dict[str, Any]:
        """Optimizers of Keras 2 cannot be pickled, so their configuration is pickled instead."""
        optimizer = objects.get("optimizer")
        if not isinstance(optimizer, tf.keras.optimizers.Optimizer):
            return objects
        return {**objects, "optimizer": {"serialized": tf.keras.optimizers.serialize(optimizer)}}

    def _from_pickle(self, objects: dict[str, Any]) -> dict[str, Any]:
        optimizer = objects.get("optimizer")
        if not isinstance(optimizer, dict) or "serialized" not in optimizer:
            return objects
        known = dict(objects.get("custom_objects") or {})
        made = tf.keras.optimizers.deserialize(optimizer["serialized"], custom_objects=known)
        return {**objects, "optimizer": made}

    def _data_module(self) -> type[ParquetDataModule]:
        return ParquetDataModule

    def _function(self) -> _training.Trainer:
        loss = self._value("loss")
        return _training.Trainer(
            model=_saving.dump(self._value("model")),
            optimizer=tf.keras.optimizers.serialize(tf.keras.optimizers.get(self._value("optimizer"))),
            custom_objects=self._value("custom_objects"),
            compiling={
                "loss": loss[0] if isinstance(loss, list) and len(loss) == 1 else loss,
                "loss_weights": self._value("loss_weights"),
                "metrics": self._value("metrics"),
            },
            callbacks=self._value("callbacks"),
            checkpoint_callback=self._value("checkpoint_callback"),
            label_shapes=self._value("label_shapes"),
            compression=self._value("gradient_compression"),
            passes=self._value("backward_passes_per_step"),
            prefetch=self._value("tensorflow_dataset_prefetch_buffer_size"),
        )

    def _trained(self, result: Any, run_id: str, columns: Mapping[str, Any]) -> KerasModel:
        return KerasModel(
            history=result.history,
            model=_saving.load(result.model, self._value("custom_objects")),
            feature_columns=self._value("feature_cols"),
            label_columns=self._value("label_cols"),
            run_id=run_id,
            custom_objects=self._value("custom_objects"),
            _metadata=dict(columns),
        )


@accessors()
class KerasModel(HorovodModel):
    """A trained Keras model: ``transform(df)`` adds its outputs to a data frame, ``getModel()`` is the model.

    Args:
        params: parameters by name: ``model``, ``feature_columns``, ``label_columns``, ``output_cols`` (by default
            ``<label>__output``), ``custom_objects``, ``history``, ``run_id``.

    Raises:
        TypeError: there is no such parameter.

    Example:
        >>> trained = KerasModel(model=model, feature_columns=["x"], label_columns=["y"])
        >>> trained.setOutputCols(["guess"]).getOutputCols()
        ['guess']
    """

    custom_objects = param("custom_objects", "classes and functions of the user's, by name")
    _takes_texts = True

    def __init__(self, **params: Any) -> None:
        super().__init__()
        self._setDefault(custom_objects={})
        self._take(params)

    def _output_sizes(self) -> list[int]:
        outputs = _saving.shapes(self.getOrDefault("model").output_shape)
        return [math.prod(length or 1 for length in shape[1:]) for shape in outputs]

    def _predictor(self) -> Callable[[], Any]:
        model = self.getOrDefault("model")
        return _Predictor(
            _saving.dump(model), self.getOrDefault("custom_objects"), self.getOrDefault("feature_columns")
        )


class _Predictor:
    """Makes, in a task of Spark, the function that computes outputs."""

    def __init__(self, model: bytes, custom_objects: Any, features: list[str]) -> None:
        self._model = model
        self._custom_objects = custom_objects
        self._features = features

    def __call__(self) -> Callable[[Mapping[str, Any]], list[Any]]:
        tf.config.set_visible_devices([], "GPU")
        model = _saving.load(self._model, self._custom_objects)
        shapes = _saving.shapes(model.input_shape)

        def predict(rows: Mapping[str, Any]) -> list[Any]:
            inputs = [rows[name].reshape((-1, *shape[1:])) for name, shape in zip(self._features, shapes)]
            outputs = model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
            return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

        return predict
