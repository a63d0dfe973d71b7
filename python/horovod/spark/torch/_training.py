"""The work of each process of a TorchEstimator."""

from __future__ import annotations

import copy
import dataclasses
import io
import os
from typing import Any, Callable, Iterable, Optional, Sequence

import torch

from horovod.spark.common import _progress
from horovod.spark.common._training import Training
from horovod.spark.torch._loss import Losses
from horovod.spark.torch._rows import Rows

Minibatch = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of rank 0's process.

    Attributes:
        history: of the epochs.
        state: of the model, saved by ``torch.save``.
        sizes: how many numbers each output has for a row; None if that is unknown.
    """

    history: list[dict[str, Any]]
    state: bytes
    sizes: Optional[list[int]]


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A training: call it in each process. Model and optimizer are pickled together, so that they share parameters."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: Losses
    metrics: Sequence[Any]
    input_shapes: Optional[Sequence[Sequence[int]]]
    label_shapes: Optional[Sequence[Sequence[int]]]
    compression: Any
    passes: int
    minibatch: Optional[Minibatch]

    def __call__(self, training: Training) -> Optional[Result]:
        """Train, and return the result on rank 0."""
        import horovod.torch as hvd

        hvd.init()
        if training.seed is not None:
            torch.manual_seed(training.seed)
        model, optimizer = self.model, self.optimizer
        device = choose_device(training.use_gpu, hvd)
        model.to(device)
        if training.checkpoint is not None:
            restore(model, optimizer, training.checkpoint, f"{training.store.checkpoint_path}", device)
        optimizer.load_state_dict(optimizer.state_dict())  # this moves it to the device
        for group in optimizer.param_groups:
            group["lr"] *= hvd.size()
        further = {"compression": self.compression} if self.compression is not None else {}
        distributed = hvd.DistributedOptimizer(
            optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=self.passes, **further
        )
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(distributed, root_rank=0)
        run = _Run(self, training, hvd, model, distributed, device)
        with training.store.get_local_output_dir() as folder:
            history = [run.epoch(epoch, folder) for epoch in range(training.epochs)]
        # A process without rows has seen no output.
        sizes = next((found for found in hvd.allgather_object(run.sizes) if found), None)
        if sizes is None:
            raise ValueError("there are no rows to train on: the transformation has left none")
        return Result(history, dump(model.cpu().state_dict()), sizes) if hvd.rank() == 0 else None


class _Run:
    """The epochs of one process."""

    def __init__(
        self, trainer: Trainer, training: Training, hvd: Any, model: Any, optimizer: Any, device: torch.device
    ) -> None:
        self._trainer = trainer
        self._training = training
        self._data = training.data
        self._hvd = hvd
        self._model = model
        self._optimizer = optimizer
        self._stepwise = _Stepwise(optimizer, trainer.passes)
        self._rows = Rows(self._data, trainer.input_shapes, trainer.label_shapes, device)
        self._minibatch = trainer.minibatch or minibatch
        # Our own module gives each process's batches. A user's module must be told how many batches an epoch has.
        own = self._data.own
        steps = (self._data.train_steps, self._data.val_steps) if own else self._data.steps(hvd.size())
        self._module = self._data.open(training, hvd.rank(), hvd.size(), steps).__enter__()
        self._train = self._module.train_data()
        self._val = self._module.val_data() if self._data.val_rows else None
        # A transformation may remove rows, so the number of batches is unknown before an epoch.
        unknown = bool(self._data.transformation) and self._data.train_steps is None
        self._uneven = unknown or len(set(hvd.allgather_object(len(self._train)))) > 1
        self.sizes: list[int] = []

    def epoch(self, number: int, folder: str) -> dict[str, Any]:
        """Train for an epoch, validate, and save a checkpoint."""
        told: dict[str, Any] = {"epoch": number, "train": self._train_once(number)}
        if self._val is not None:
            told["validation"] = self._validate()
        if self._hvd.rank() == 0:
            self._save(folder)
            if self._training.verbose:
                print(_in_words(told, self._training.epochs), flush=True)
        if number == self._training.epochs - 1:
            self._module.__exit__(None, None, None)
        return told

    def _train_once(self, number: int) -> dict[str, Any]:
        self._model.train()
        sums = _Sums(self._trainer.metrics, self._data.labels)
        told = _progress.Teller(
            self._training.progress and self._hvd.rank() == 0, self._training.epochs, len(self._train)
        )
        for step, batch in enumerate(self._train):
            inputs, labels, weights = self._rows.prepare(batch)
            learnt = self._minibatch(
                self._model,
                self._stepwise,
                self._rows.shaped,
                self._trainer.losses,
                inputs,
                labels,
                weights,
            )
            if not isinstance(learnt, (tuple, list)) or len(learnt) != 2:
                raise TypeError(f"train_minibatch_fn returned {learnt!r}: (outputs, loss) is needed")
            outputs, loss = learnt
            outputs, labels = self._rows.shaped(outputs, labels)
            sums.add(loss, outputs, labels)
            self.sizes = [output[0].numel() for output in outputs]
            told.step(number, step)
        self._stepwise.finish()
        if self._uneven:
            last = self._hvd.join()
            self._hvd.broadcast_parameters(self._model.state_dict(), root_rank=last)
            self._hvd.broadcast_optimizer_state(self._optimizer, root_rank=last)
        return sums.average(self._hvd)

    def _validate(self) -> dict[str, Any]:
        self._model.eval()
        sums = _Sums(self._trainer.metrics, self._data.labels)
        with torch.no_grad():
            for batch in self._val or ():
                inputs, labels, weights = self._rows.prepare(batch)
                outputs, labels = self._rows.shaped(self._model(*inputs), labels)
                sums.add(self._trainer.losses(outputs, labels, weights), outputs, labels)
        return sums.average(self._hvd)

    def _save(self, folder: str) -> None:
        store = self._training.store
        if not store.saving_runs:
            return
        optimizer = copy.deepcopy(self._optimizer.state_dict())
        for group in optimizer["param_groups"]:
            group["lr"] /= self._hvd.size()
        state = dump({"model": self._model.state_dict(), "optimizer": optimizer})
        with open(os.path.join(folder, store.checkpoint_filename), "wb") as file:
            file.write(state)
        store.sync(folder)


def minibatch(
    model: Any,
    optimizer: Any,
    transform_outputs: Callable[..., Any],
    loss_fn: Callable[..., Any],
    inputs: Sequence[Any],
    labels: Sequence[Any],
    sample_weights: Any,
) -> tuple[Any, Any]:
    """Learn one batch. ``train_minibatch_fn`` replaces this function.

    Args:
        model: the model.
        optimizer: the distributed optimizer. With several backward passes for each step, ``zero_grad()`` and ``step()``
            do nothing between steps.
        transform_outputs: turns ``(outputs, labels)`` into lists of suitable shapes.
        loss_fn: computes the loss of ``(outputs, labels, sample_weights)``.
        inputs: tensors for the model.
        labels: tensors, one for each label column.
        sample_weights: a tensor of the rows' weights, or None.

    Returns:
        The outputs, and the loss.

    Example:
        >>> def checked(*args):
        ...     outputs, loss = minibatch(*args)
        ...     assert torch.isfinite(loss)
        ...     return outputs, loss
        >>> estimator = TorchEstimator(train_minibatch_fn=checked)
    """
    optimizer.zero_grad()
    outputs, labels = transform_outputs(model(*inputs), labels)
    loss = loss_fn(outputs, labels, sample_weights)
    loss.backward()
    optimizer.step()
    return outputs, loss


class _Stepwise:
    """An optimizer that steps once in several backward passes."""

    def __init__(self, optimizer: Any, passes: int) -> None:
        self._optimizer = optimizer
        self._passes = passes
        self._done = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        if self._done == 0:
            self._optimizer.zero_grad(*args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> Any:
        self._done = (self._done + 1) % self._passes
        return self._optimizer.step(*args, **kwargs) if self._done == 0 else None

    def finish(self) -> None:
        """Make a step with the gradients of the last backward passes, if these were too few for a step."""
        if self._done:
            self._done = 0
            self._optimizer.step()


class _Sums:
    """Sums of the loss and the metrics over rows."""

    def __init__(self, metrics: Sequence[Any], labels: Sequence[str]) -> None:
        self._metrics = metrics
        self._labels = labels
        self._rows = 0
        self._sums = torch.zeros(1 + len(metrics) * len(labels), dtype=torch.float64, device="cpu")

    def add(self, loss: Any, outputs: Sequence[Any], labels: Sequence[Any]) -> None:
        rows = len(outputs[0])
        with torch.no_grad():
            found = [loss.detach()]
            for metric in self._metrics:
                found += [metric(output.detach(), label) for output, label in zip(outputs, labels)]
        self._sums += torch.tensor([float(value) for value in found], dtype=torch.float64, device="cpu") * rows
        self._rows += rows

    def average(self, hvd: Any) -> dict[str, Any]:
        """The averages over the rows of all processes."""
        both = torch.cat([self._sums, torch.tensor([self._rows], dtype=torch.float64, device="cpu")])
        *sums, rows = hvd.allreduce(both, op=hvd.Sum, name="spark.metrics").tolist()
        loss, *values = [value / max(rows, 1) for value in sums]
        names = [
            name_of(metric) if len(self._labels) == 1 else f"{label}_{name_of(metric)}"
            for metric in self._metrics
            for label in self._labels
        ]
        return {"loss": loss, "metrics": dict(zip(names, values))}


def name_of(metric: Any) -> str:
    """The name of a metric in the history."""
    return str(getattr(metric, "__name__", type(metric).__name__))


def _in_words(told: dict[str, Any], epochs: int) -> str:
    parts = [f"epoch {told['epoch'] + 1}/{epochs}"]
    for part in ("train", "validation"):
        if part in told:
            values = {"loss": told[part]["loss"], **told[part]["metrics"]}
            parts.append(f"{part}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
    return "; ".join(parts)


def choose_device(use_gpu: bool, hvd: Any) -> torch.device:
    """This process's device. Raises RuntimeError unless all processes have a GPU, or none has."""
    count = torch.cuda.device_count() if use_gpu and torch.cuda.is_available() else 0
    have = hvd.allgather_object(count > 0)
    if len(set(have)) > 1:
        ranks = ", ".join(str(rank) for rank, has in enumerate(have) if not has)
        raise RuntimeError(f"ranks {ranks} have no GPU, the others do: give all one, or set use_gpu=False")
    if count == 0:
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank() % count)
    return torch.device("cuda", torch.cuda.current_device())


def dump(value: Any) -> bytes:
    """A state as bytes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def load(data: bytes, device: Any = "cpu") -> Any:
    """A state from bytes that :func:`dump` has made. PyTorch 2 accepts only tensors and numbers, no code."""
    safe = {"weights_only": True} if int(torch.__version__.split(".")[0]) >= 2 else {}  # 1.13 refuses numbers
    return torch.load(io.BytesIO(data), map_location=device, **safe)


def restore(model: Any, optimizer: Any, checkpoint: bytes, path: str, device: Any) -> None:
    """Let model and optimizer continue from a checkpoint. Raises ValueError if it is damaged, or does not fit."""
    wanted = [set(group) for group in optimizer.param_groups]
    try:
        saved = load(checkpoint, device)
        model.load_state_dict(saved["model"])
        lacks = [names - set(group) for names, group in zip(wanted, saved["optimizer"]["param_groups"])]
        if any(lacks):
            raise ValueError(f"its optimizer has no {', '.join(sorted(set().union(*lacks)))}")
        optimizer.load_state_dict(saved["optimizer"])
    except Exception as e:
        raise ValueError(
            f"the training cannot go on from the checkpoint {path}: {type(e).__name__}: {e}. If it is of another model "
            "or optimizer, give another run_id; if it is damaged, remove it"
        ) from e


def outputs_of(model: Any, inputs: Iterable[Any]) -> list[Any]:
    """The model's outputs as a list of arrays of numpy."""
    with torch.no_grad():
        outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [output.cpu().numpy() for output in outputs]
