"""The callbacks, for any Keras. Each is mixed into a callback of the Keras that it is for.

``_keras`` is that Keras' module.
"""

from __future__ import annotations

import binascii
import numbers
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from horovod._keras import _frameworks
from horovod._keras._framework import Framework
from horovod._keras._sharded import is_sharded
from horovod.common import _arguments, _job
from horovod.common._reduce_ops import Min
from horovod.common.process_sets import ProcessSet, global_process_set

Logs = Optional[dict[str, Any]]


class _Callback:
    _keras: Any
    model: Any  # set by Keras, as are the parameters
    params: Any

    @property
    def _framework(self) -> Framework:
        return _frameworks.framework(self._keras)


def optimizer_variables(optimizer: Any) -> list[Any]:
    """The variables that an optimizer has now."""
    variables = getattr(optimizer, "variables", ())
    return list(variables() if callable(variables) else variables)


class BroadcastGlobalVariables(_Callback):
    """Makes all ranks start with the model and the optimizer of ``root_rank``.

    The model is broadcast before the first batch, if all ranks have built it by then. After the first batch it is
    broadcast together with the variables of the optimizer. Use it if training starts from random weights, or from a
    checkpoint that one rank restores. Each rank keeps its share of the state of a sharded optimizer; its model must be
    built, and a checkpoint be restored by all ranks.

    Args:
        root_rank: the rank whose model all ranks get.
        device: accepted as in Horovod; the communication runs on the CPU.
        local_variables: variables of the model that stay each rank's own.
        process_set: the ranks that train together; on other ranks the callback does nothing.

    Raises:
        ValueError: when training begins, the optimizer is sharded, and the model is not built on all ranks.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0)
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback], verbose=0)
    """

    def __init__(
        self,
        root_rank: int,
        device: str = "",
        local_variables: Optional[Sequence[Any]] = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__()
        self.root_rank = _arguments.root_rank(root_rank)
        self.device = device
        self.process_set = _arguments.process_set(process_set)
        self.broadcast_done = False
        self._local_variables = {id(v): v for v in local_variables or ()}

    def register_local_var(self, var: Any) -> None:
        """Let a variable of the model stay this rank's own.

        Args:
            var: the variable.
        """
        self._local_variables[id(var)] = var

    def _weights(self) -> list[Any]:
        return [v for v in self.model.weights if id(v) not in self._local_variables]

    def on_train_begin(self, logs: Logs = None) -> None:
        """Broadcast the model, if it is built on all ranks."""
        if self.broadcast_done or not self.process_set.included():
            return
        built = np.int32(bool(self.model.built))
        if self._framework.allreduce(built, "broadcast_callback.built", op=Min, process_set=self.process_set) > 0:
            self._framework.broadcast_variables(self._weights(), self.root_rank, self.process_set)
        elif is_sharded(self.model.optimizer):
            raise ValueError(
                "with a sharded optimizer, the model must be built before training begins: in the first step each rank "
                "updates its share of the weights. Call model.build(input_shape) on all ranks"
            )

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """After the first batch: broadcast the model and the optimizer, which are built by then."""
        if self.broadcast_done or not self.process_set.included():
            return
        state = [v for v in optimizer_variables(self.model.optimizer) if not self._framework.is_share(v)]
        variables = self._weights() + state
        self._framework.broadcast_variables(variables, self.root_rank, self.process_set)
        self.broadcast_done = True


class MetricAverage(_Callback):
    """Averages the metrics of an epoch over the ranks of ``process_set``. Place it before callbacks that use them.

    Args:
        device: accepted as in Horovod; the communication runs on the CPU.
        process_set: the ranks that train together; others keep their metrics.

    Raises:
        ValueError: at the end of an epoch, the ranks have different metrics.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> callback = hvd.callbacks.MetricAverageCallback()
        >>> _ = model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[callback], verbose=0)
    """

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.device = device
        self.process_set = _arguments.process_set(process_set)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Replace each metric of ``logs`` by its average."""
        if logs is None or not self.process_set.included():
            return
        names = sorted(name for name, value in logs.items() if _is_number(value))
        checksum = float(binascii.crc32("\0".join(names).encode()) % 2**20)
        values = np.array([checksum, *(float(logs[name]) for name in names)])
        averages = self._framework.allreduce(values, "metric_average", process_set=self.process_set)
        if abs(averages[0] - checksum) > 1e-3:
            raise ValueError(
                f"the ranks have different metrics; this one has {', '.join(names)}. Compile the model with the same "
                "metrics on all ranks"
            )
        for name, average in zip(names, averages[1:]):
            logs[name] = float(average)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Number) or getattr(value, "shape", None) == ()


class LearningRateSchedule(_Callback):
    """Sets the learning rate to ``initial_lr * multiplier(epoch)`` for ``start_epoch <= epoch < end_epoch``.

    Adds ``lr`` to the logs of each epoch.

    Args:
        initial_lr: the rate that is multiplied.
        multiplier: a function of the epoch, or a number ``m``, which stands for ``m ** (epoch - start_epoch)``.
        start_epoch: the first epoch.
        end_epoch: the one after the last; None: there is no end.
        staircase: change it at the first batch of an epoch; otherwise at each batch, with a fraction as part of the
            epoch.
        momentum_correction: scale the momentum by new rate / old rate when the rate changes, as
            https://arxiv.org/abs/1706.02677 recommends for SGD.
        steps_per_epoch: needed for a fraction if Keras does not know it.

    Raises:
        ValueError: there is no ``initial_lr``.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> callback = hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.5, multiplier=0.5)
        >>> history = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, callbacks=[callback], verbose=0)
        >>> history.history["lr"]
        [0.5, 0.25]
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch: Any = steps_per_epoch  # on_train_begin makes it a number if one is needed
        self.current_epoch = 0
        self._restore_momentum: Optional[Callable[[], None]] = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            base = multiplier
            self.multiplier = lambda epoch: base ** (epoch - start_epoch)

    def _find_steps_per_epoch(self) -> int:
        params = self.params or {}
        if params.get("steps"):
            return params["steps"]
        if params.get("samples") and params.get("batch_size"):
            return params["samples"] // params["batch_size"]
        raise ValueError(
            "Could not autodetect the number of steps per epoch. Please specify the steps_per_epoch parameter to the "
            f"{type(self).__name__}() or upgrade to the latest version of Keras."
        )

    def on_train_begin(self, logs: Logs = None) -> None:
        """Find out how many steps an epoch has, if the schedule needs that."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self._find_steps_per_epoch()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Note the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Set the rate of this batch."""
        if self.current_epoch < self.start_epoch:
            return
        if self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            self._adjust(self.current_epoch + float(batch) / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Undo the correction of this batch's momentum."""
        if self._restore_momentum is not None:
            self._restore_momentum()
            self._restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Add the rate to the logs."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return _value(self._keras, self.model.optimizer.learning_rate)

    def _adjust(self, epoch: float) -> None:
        old = self._rate()
        new = self.initial_lr * self.multiplier(epoch)
        self.model.optimizer.learning_rate = new
        if self.momentum_correction and old > 0 and new != old:
            self._restore_momentum = correct_momentum(self._keras, self.model.optimizer, new / old)


def _value(keras: Any, variable: Any) -> float:
    if _frameworks.major(keras) == 3:
        return float(keras.ops.convert_to_numpy(variable))
    return float(keras.backend.get_value(variable))


def correct_momentum(keras: Any, optimizer: Any, ratio: float) -> Optional[Callable[[], None]]:
    """Multiply the momentum of the next step of an SGD or RMSprop by ``ratio``. Call the returned function after that
    step.

    A compiled step contains the momentum as a number, except with Keras 2's legacy optimizers, which have a variable
    for it. For other optimizers this multiplies the velocities, to the same effect.
    """
    if "momentum" in getattr(optimizer, "_hyper", {}):
        momentum = _value(keras, optimizer.momentum)
        if momentum == 0:
            return None
        optimizer.momentum = momentum * ratio

        def restore() -> None:
            optimizer.momentum = momentum

        return restore
    if isinstance(optimizer, (keras.optimizers.SGD, keras.optimizers.RMSprop)) and optimizer.momentum:
        for velocity in getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or ():
            velocity.assign(velocity * ratio)
    return None


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate from ``initial_lr / size`` to ``initial_lr`` over the first ``warmup_epochs``.

    See https://arxiv.org/abs/1706.02677.

    Args:
        initial_lr: the rate for all ranks together, usually one rank's multiplied by ``hvd.size()``.
        warmup_epochs: how many epochs the warm-up takes.
        momentum_correction, steps_per_epoch: as for ``LearningRateScheduleCallback``.
        verbose: above 0 prints the rate at the end.

    Raises:
        ValueError: there is no ``initial_lr``.

    Example:
        >>> model = keras.Sequential([keras.layers.Dense(1)])
        >>> model.compile(keras.optimizers.SGD(0.1), loss="mse")
        >>> callback = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.5, warmup_epochs=2)
        >>> history = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, callbacks=[callback], verbose=0)
        >>> history.history["lr"]  # on one rank there is nothing to raise
        [0.5, 0.5]
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # One step ahead, so that the last batch of the warm-up has the full rate.
            epoch += 1.0 / self.steps_per_epoch
            size = _job.size()
            return 1.0 / size * (epoch * (size - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Add the rate to the logs, and print it at the end of the last epoch of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if epoch + 1 == self.end_epoch and self.verbose > 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")


def best_model_checkpoint(keras: Any) -> Any:
    """A class derived from Keras' ModelCheckpoint, which saves the best model only, to a path that is set later."""

    class Checkpoint(keras.callbacks.ModelCheckpoint):
        def __init__(
            self, monitor: str, verbose: int, save_weights_only: bool, mode: str, save_freq: Union[str, int]
        ) -> None:
            super().__init__(
                filepath="best.weights.h5" if save_weights_only else "best.keras",  # Keras looks at the suffix
                monitor=monitor,
                verbose=verbose,
                save_best_only=True,
                save_weights_only=save_weights_only,
                mode=mode,
                save_freq=save_freq,
            )
            self.filepath = None

        def on_train_begin(self, logs: Logs = None) -> None:
            if self.filepath is None:
                raise ValueError("BestModelCheckpoint: set filepath before training")
            super().on_train_begin(logs)

    return Checkpoint
