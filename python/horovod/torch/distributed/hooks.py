"""Communication hooks for DistributedDataParallel: ``model.register_comm_hook(state, hook)``."""

# No annotations as strings here, because DistributedDataParallel reads the annotations of hooks.
from typing import Any, Optional

import torch
import torch.distributed as dist

from horovod.common._reduce_ops import Average
from horovod.torch.compression import AS_IT_IS, Compression, Compressor, is_engines, prepare


def _averaged(
    tensor: torch.Tensor, group: Optional[dist.ProcessGroup], wire: int = AS_IT_IS
) -> torch.futures.Future[torch.Tensor]:
    """The average of ``tensor``, in place; it travels between hosts in the form ``wire``."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG
    return group._allreduce([tensor], options, wire).get_future().then(_first)


def _first(future: torch.futures.Future) -> torch.Tensor:
    return future.value()[0]


def allreduce_hook(state: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients in one operation, for ``DistributedDataParallel.register_comm_hook``.

    DistributedDataParallel does this by itself, but here the division is part of the operation.

    Args:
        state: a gorovod group; None: the default one.
        bucket: the gradients.

    Returns:
        A future of the bucket's average.

    Example:
        >>> dist.init_process_group("gorovod", init_method="horovod://")
        >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        >>> model.register_comm_hook(None, gorovod.allreduce_hook)
        >>> model(torch.ones(4, 2)).sum().backward()
        >>> dist.destroy_process_group()
    """
    return _averaged(bucket.buffer(), state)


class CompressedState:
    """The state of :func:`compressed_hook`.

    Args:
        compression: how gradients are compressed, one of ``horovod.torch.Compression``.
        process_group: a gorovod group; None: the default one.

    Example:
        >>> from horovod.torch import Compression
        >>> state = gorovod.CompressedState(Compression.bf16)
    """

    def __init__(
        self, compression: type[Compressor] = Compression.fp16, process_group: Optional[dist.ProcessGroup] = None
    ) -> None:
        self.compression = compression
        self.process_group = process_group


def compressed_hook(state: Optional[CompressedState], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients, which travels compressed, for ``DistributedDataParallel.register_comm_hook``.

    ``Compression.fp16`` and ``bf16`` have the same meaning as in ``horovod.torch.allreduce``: float32 and float64 are
    rounded where they travel between hosts, and nowhere else. A compressor of your own compresses the bucket before the
    operation, and decompresses it after it. ``Compression.int8`` and ``fp8`` are refused: they keep errors by the
    tensors' names, and buckets have none.

    Args:
        state: how gradients are compressed; None: by ``Compression.fp16``, in the default group.
        bucket: the gradients.

    Returns:
        A future of the bucket's average.

    Raises:
        ValueError: the compression is ``Compression.int8`` or ``fp8``.

    Example:
        >>> dist.init_process_group("gorovod", init_method="horovod://")
        >>> model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        >>> from horovod.torch import Compression
        >>> model.register_comm_hook(gorovod.CompressedState(Compression.fp16), gorovod.compressed_hook)
        >>> model(torch.ones(4, 2)).sum().backward()
        >>> dist.destroy_process_group()
    """
    state = CompressedState() if state is None else state
    if is_engines(state.compression):
        form = state.compression.form  # type: ignore[attr-defined]
        raise ValueError(
            f"Compression.{form} keeps errors by the tensors' names, and buckets have none; use Compression.bf16, or "
            "horovod.torch.DistributedOptimizer"
        )
    buffer = bucket.buffer()
    tensor, context, wire = prepare(state.compression, buffer, Average)
    average = _averaged(tensor, state.process_group, wire)
    if wire:
        return average

    def decompress(future: torch.futures.Future) -> torch.Tensor:
        reduced: Any = state.compression.decompress(future.value(), context)
        return buffer.copy_(reduced) if reduced.data_ptr() != buffer.data_ptr() else buffer

    return average.then(decompress)
