"""The work of each process of a KerasEstimator."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import shutil
import warnings
from typing import Any, Mapping, Optional, Sequence

import tensorflow as tf

from horovod.spark.common import _given, _progress
from horovod.spark.common._training import Training
from horovod.spark.keras import _loss, _saving


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of rank 0's process.

    Attributes:
        history: lists of values of the epochs, by name.
        model: in the form of ``_saving.dump``.
    """

    history: dict[str, list[float]]
    model: bytes


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A training: call it in each process.

    Attributes:
        model: in the form of ``_saving.dump``.
        optimizer: in Keras's serialized form.
        custom_objects: the user's classes and functions.
        compiling: arguments for ``model.compile``: loss, loss_weights, metrics.
        callbacks: the user's.
        checkpoint_callback: chooses the epoch whose model counts; None for the last one.
        label_shapes: the shape of each label.
        compression: of gradients.
        passes: batches for each step.
        prefetch: batches that tf.data keeps ready.
    """

    model: bytes
    optimizer: Any
    custom_objects: Mapping[str, Any]
    compiling: Mapping[str, Any]
    callbacks: Sequence[Any]
    checkpoint_callback: Any
    label_shapes: Optional[Sequence[Sequence[int]]]
    compression: Any
    passes: int
    prefetch: int

    def __call__(self, training: Training) -> Optional[Result]:
        """Train, and return the result on rank 0."""
        import horovod.tensorflow.keras as hvd

        hvd.init()
        _choose_device(training.use_gpu, hvd)
        if training.seed is not None:
            tf.keras.utils.set_random_seed(training.seed)
        model = self._compiled(training, hvd)
        data, size = training.data, hvd.size()
        steps = data.steps(size, self.passes)
        with training.store.get_local_output_dir() as folder:
            with data.open(training, hvd.rank(), size, steps) as module:
                val = self._shaped(module.val_data(), training, model) if data.val_rows else None
                history = model.fit(
                    self._shaped(module.train_data(), training, model),
                    epochs=training.epochs,
                    steps_per_epoch=steps[0],
                    validation_data=val,
                    validation_steps=steps[1] if data.val_rows else None,
                    callbacks=self._callbacks(training, hvd, folder, steps[0]),
                    shuffle=False,  # the reader does, and Keras would warn that it cannot
                    verbose=2 if training.verbose and hvd.rank() == 0 else 0,
                ).history
            if hvd.rank() != 0:
                return None
            best = _best(self.checkpoint_callback, folder)
        told = {name: [float(value) for value in values] for name, values in history.items()}
        return Result(told, best or _saving.dump(model))

    def _compiled(self, training: Training, hvd: Any) -> Any:
        further = {} if self.compression is None else {"compression": self.compression}
        optimizer = tf.keras.optimizers.deserialize(self.optimizer, custom_objects=dict(self.custom_objects))
        rate = _rate(optimizer)
        model = _saving.load(self.model, self.custom_objects)
        distributed = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=self.passes, **further)
        model.compile(optimizer=distributed, **self.compiling)
        if training.checkpoint is not None:
            try:
                _saving.restore(model, type(optimizer).__name__, training.checkpoint)
            except Exception as e:
                raise ValueError(
                    f"the training cannot go on from the checkpoint {training.store.checkpoint_path}: "
                    f"{type(e).__name__}: {e}. If it is of another model or optimizer, give another run_id; if it is "
                    "damaged, remove it"
                ) from e
        _set_rate(model.optimizer, rate, hvd.size())
        return model

    def _callbacks(self, training: Training, hvd: Any, folder: str, steps: int) -> list[Any]:
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            *self.callbacks,
        ]
        if hvd.rank() != 0:
            return callbacks
        if training.progress:
            callbacks.append(_Progress(_progress.Teller(True, training.epochs, steps)))
        if self.checkpoint_callback is not None:
            self.checkpoint_callback.filepath = os.path.join(folder, _BEST)
            callbacks.append(self.checkpoint_callback)
        if training.store.saving_runs:
            callbacks += _logs(os.path.join(folder, training.store.logs_subdir))
            callbacks.append(_Save(training.store, folder, self.checkpoint_callback is not None))
        return callbacks

    def _shaped(self, rows: Any, training: Training, model: Any) -> Any:
        """Rows by column in the form for ``model.fit``: inputs, labels, and weights if there are any."""
        data = training.data
        inputs = list(zip(data.features, _saving.shapes(model.input_shape), [one.dtype for one in model.inputs]))
        outputs = _saving.shapes(model.output_shape)
        asked: Sequence[Any] = self.label_shapes or [None] * len(data.labels)
        labels = list(zip(data.labels, asked, outputs))

        def row(columns: Mapping[str, Any]) -> Any:
            data.check(columns)
            whole = {name: _whole(training, name, value) for name, value in columns.items()}
            xs = [tf.cast(tf.reshape(whole[name], _free(shape)), kind) for name, shape, kind in inputs]
            ys = [_label(whole[name], shape, output) for name, shape, output in labels]
            found = (xs[0] if len(xs) == 1 else tuple(xs), ys[0] if len(ys) == 1 else tuple(ys))
            return found if data.weight is None else (*found, tf.reshape(tf.cast(whole[data.weight], tf.float32), [-1]))

        rows = rows.map(row)
        found = [one.shape for one in tf.nest.flatten(rows.element_spec[1])]
        _loss.check(self.compiling.get("loss"), getattr(model, "output_names", ()), found, outputs)
        return rows.prefetch(self.prefetch) if self.prefetch else rows


_BEST = "best.keras"


def _best(callback: Any, folder: str) -> Optional[bytes]:
    """The model that the checkpoint callback has kept, if there is one."""
    path = os.path.join(folder, _BEST)
    if callback is None or not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


class _Progress(tf.keras.callbacks.Callback):
    """Reports each batch to the driver."""

    def __init__(self, teller: _progress.Teller) -> None:
        super().__init__()
        self._teller = teller
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._teller.step(self._epoch, batch)


def _logs(folder: str) -> list[Any]:
    """The callback that writes logs for TensorBoard, if that is installed."""
    if importlib.util.find_spec("tensorboard") is None:
        print("the run has no logs for TensorBoard: pip install tensorboard on the executors", flush=True)
        return []
    return [tf.keras.callbacks.TensorBoard(folder)]


class _Save(tf.keras.callbacks.Callback):
    """Saves a checkpoint after each epoch, and the logs."""

    def __init__(self, store: Any, folder: str, best: bool) -> None:
        super().__init__()
        self._store = store
        self._folder = folder
        self._best = best

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        path = os.path.join(self._folder, self._store.checkpoint_filename)
        best = os.path.join(self._folder, _BEST)
        if not self._best:
            with open(path, "wb") as file:
                file.write(_saving.dump(self.model))
        elif os.path.exists(best):
            shutil.copyfile(best, path)
        tf.summary.flush()
        self._store.sync(self._folder)

    def on_train_end(self, logs: Any = None) -> None:
        self._store.sync(self._folder)


def _whole(training: Training, name: str, value: Any) -> Any:
    """A column's values, including zeros that were not stored."""
    size = training.data.compressed(name)
    if size is None:
        return value
    made = tf.numpy_function(lambda stored: training.data.whole(name, stored), [value], value.dtype)
    made.set_shape((None, size))
    return made


def _free(shape: Sequence[Any]) -> list[int]:
    """A shape whose first length, the rows of a batch, is free."""
    if any(length is None for length in shape[1:]):
        raise ValueError(f"the model takes inputs of the shape {tuple(shape)}: the lengths but the first must be fixed")
    return [-1, *shape[1:]]


def _label(value: Any, shape: Optional[Sequence[int]], output: Sequence[Any]) -> Any:
    if value.dtype == tf.float64:
        value = tf.cast(value, tf.float32)
    if shape is not None:
        return tf.reshape(value, _given.of_batch(shape))
    wanted = math.prod(length or 1 for length in output[1:])
    return tf.reshape(value, [-1, *output[1:]]) if math.prod(value.shape[1:]) == wanted else value


def _rate(optimizer: Any) -> Optional[float]:
    """The learning rate, or None if it follows a schedule."""
    if isinstance(optimizer.get_config().get("learning_rate"), dict):
        return None
    return float(tf.convert_to_tensor(optimizer.learning_rate))


def _set_rate(optimizer: Any, rate: Optional[float], size: int) -> None:
    if rate is None:
        warnings.warn(f"the learning rate follows a schedule: it is not multiplied by {size}, the size", stacklevel=2)
        return
    optimizer.learning_rate = rate * size


def _choose_device(use_gpu: bool, hvd: Any) -> None:
    """Let this process see one GPU or none. Raises RuntimeError unless all processes have one, or none has."""
    from horovod.tensorflow import allgather_object

    gpus = tf.config.list_physical_devices("GPU") if use_gpu else []
    have = allgather_object(bool(gpus))
    if len(set(have)) > 1:
        ranks = ", ".join(str(rank) for rank, has in enumerate(have) if not has)
        raise RuntimeError(f"ranks {ranks} have no GPU, the others do: give all one, or set use_gpu=False")
    own = [gpus[hvd.local_rank() % len(gpus)]] if gpus else []
    tf.config.set_visible_devices(own, "GPU")
    for gpu in own:
        tf.config.experimental.set_memory_growth(gpu, True)
