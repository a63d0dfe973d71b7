"""The strategy by which Lightning's Trainer trains in the processes of a job."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Optional

import torch

from horovod.spark.lightning import _averaging, _package, _rates
from horovod.spark.lightning._even import Even
from horovod.spark.torch import _training


class Earlier:
    """The checkpoint that a training continues from.

    Args:
        content: of the file.
        path: of the file, in the store.

    Raises:
        ValueError: it is damaged.
    """

    def __init__(self, content: bytes, path: str) -> None:
        self._content = content
        self.path = path
        with self.usable():
            self.epochs: int = _training.load(content)["epoch"] + 1

    def load(self, device: Any) -> dict[str, Any]:
        """The state that Lightning has saved, with tensors on the device."""
        with self.usable():
            saved: dict[str, Any] = _training.load(self._content, device)
            return saved

    @contextlib.contextmanager
    def usable(self) -> Iterator[None]:
        """A context whose errors name the checkpoint's file and say what to do."""
        try:
            yield
        except Exception as e:
            raise ValueError(
                f"the training cannot go on from the checkpoint {self.path}: {type(e).__name__}: {e}. If it is of "
                "another model or optimizer, give another run_id; if it is damaged, remove it"
            ) from e


class _Strategy(_package.Open):
    """One device of this process, gradients averaged over all processes, and Lightning's own exchanges by Horovod.

    Args:
        hvd: ``horovod.torch``.
        device: of this process.
        compression: of gradients, or None.
        terminate_on_nan: whether a loss that is not finite ends the training.
        earlier: the checkpoint that the training continues from; None if there is none.
    """

    strategy_name = "horovod"
    is_distributed = True  # otherwise Lightning ignores sync_dist

    def __init__(
        self, hvd: Any, device: Any, compression: Any, terminate_on_nan: bool, earlier: Optional[Earlier]
    ) -> None:
        super().__init__(device=device)
        self._hvd = hvd
        self._compression = compression
        self._terminate_on_nan = terminate_on_nan
        self.earlier = earlier
        self.even: Optional[Even] = None  # the training batches, if the data module is ours
        self.world_size = hvd.size()
        self.global_rank = hvd.rank()
        self.local_rank = hvd.local_rank()
        self.node_rank = hvd.cross_rank()

    @property
    def is_global_zero(self) -> bool:
        """Whether this is rank 0."""
        return bool(self._hvd.rank() == 0)

    def setup(self, trainer: Any) -> None:
        """Start with rank 0's parameters."""
        super().setup(trainer)
        self._hvd.broadcast_parameters(self.lightning_module.state_dict(), root_rank=0)

    def setup_optimizers(self, trainer: Any) -> None:
        """Multiply the learning rates by the number of processes."""
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            _rates.scale_optimizer(optimizer, self._hvd.size())
        for config in self.lr_scheduler_configs:
            _rates.scale_scheduler(config.scheduler, self._hvd.size())

    def backward(self, closure_loss: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute gradients, and average them before a step of the optimizer, before hooks, scaling and clipping."""
        module, precision = self.lightning_module, self.precision_plugin
        if self._terminate_on_nan and not torch.isfinite(closure_loss).all():
            raise ValueError(f"terminate_on_nan: the loss returned in `training_step` is {closure_loss}")
        if self.even is not None and self.even.fills(module.trainer.fit_loop.batch_idx):
            closure_loss = closure_loss * 0
        self.pre_backward(closure_loss)
        closure_loss = precision.pre_backward(closure_loss, module)
        precision.backward(closure_loss, module, optimizer, *args, **kwargs)
        if not (module.automatic_optimization and module.trainer.fit_loop._should_accumulate()):
            _averaging.average(module.parameters(), self._hvd, self._compression)
        closure_loss = precision.post_backward(closure_loss, module)
        self.post_backward(closure_loss)
        return closure_loss

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The mean, or the reduction ``reduce_op``, over all processes."""
        if not isinstance(tensor, torch.Tensor):
            return tensor
        word = str(reduce_op or "mean").rpartition(".")[2].lower()
        op = {"mean": "Average", "avg": "Average", "product": "Product"}.get(word, word.capitalize())
        values = tensor.detach().float() if op == "Average" and not tensor.is_floating_point() else tensor.detach()
        return self._hvd.allreduce(values, op=getattr(self._hvd, op), name="spark.reduce")

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002 - Lightning's name
        """Whether all processes say yes, or any process does."""
        votes = self._hvd.allreduce(
            torch.tensor([int(decision)], device="cpu"), op=self._hvd.Sum, name="spark.votes"
        ).item()
        return bool(votes == self._hvd.size() if all else votes > 0)

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """The tensors of all processes, concatenated."""
        with contextlib.nullcontext() if sync_grads else torch.no_grad():
            return self._hvd.allgather(tensor.unsqueeze(0), name="spark.gather")

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of a process."""
        return self._hvd.broadcast_object(obj, src, name="spark.object")

    def barrier(self, name: Optional[str] = None) -> None:
        """Wait for all processes."""
        self._hvd.barrier()

    def save_checkpoint(self, checkpoint: Any, filepath: Any, storage_options: Optional[Any] = None) -> None:
        """Save with the learning rates of one process."""
        super().save_checkpoint(_rates.scaled(checkpoint, 1 / self._hvd.size()), filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, **_: Any) -> dict[str, Any]:
        """Load a saved state. PyTorch 2 accepts no code in it."""
        if self.earlier is not None and str(checkpoint_path) == self.earlier.path:
            saved = self.earlier.load(self.root_device)
        else:
            with open(checkpoint_path, "rb") as file:
                saved = _training.load(file.read(), self.root_device)
        return _rates.scaled(saved, self._hvd.size())

    def load_model_state_dict(self, checkpoint: Any, *args: Any, **kwargs: Any) -> None:
        """Load the model's saved state."""
        with self._usable():
            super().load_model_state_dict(checkpoint, *args, **kwargs)

    def load_optimizer_state_dict(self, checkpoint: Any) -> None:
        """The same for the optimizers."""
        with self._usable():
            super().load_optimizer_state_dict(checkpoint)

    def _usable(self) -> Any:
        return self.earlier.usable() if self.earlier is not None else contextlib.nullcontext()


def make(package: Any, *args: Any) -> Any:
    """A strategy for the package's Trainer."""
    return _package.derive(_Strategy, package.strategies.SingleDeviceStrategy)(*args)


@contextlib.contextmanager
def process_group(size: int) -> Iterator[None]:
    """PyTorch's own process group for this job, by which torchmetrics adds up the processes' values."""
    import torch.distributed as dist

    if size == 1 or not dist.is_available() or dist.is_initialized():
        yield
        return
    import horovod.torch.distributed  # noqa: F401 - registers the backend

    dist.init_process_group("gorovod")
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
