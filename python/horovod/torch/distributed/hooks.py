"""Communication hooks for DistributedDataParallel: ``model.register_comm_hook(state, hook)``."""

# No annotations as strings here: DistributedDataParallel reads those of hooks.
from typing import Any, Optional

import torch
import torch.distributed as dist

from horovod.common._reduce_ops import Average
from horovod.torch.compression import AS_IT_IS, Compression, Compressor, prepare


def _averaged(
    tensor: torch.Tensor, group: Optional[dist.ProcessGroup], wire: int = AS_IT_IS
) -> torch.futures.Future[torch.Tensor]:
    """The average of ``tensor``, in place, which travels between hosts as ``wire`` says."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG
    return group._allreduce([tensor], options, wire).get_future().then(_first)


def _first(future: torch.futures.Future) -> torch.Tensor:
    return future.value()[0]


def allreduce_hook(state: Optional[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients in one operation. ``state`` is the group; None: the default one, a gorovod group.

    What DistributedDataParallel does by itself, but the division is part of the operation.
    """
    return _averaged(bucket.buffer(), state)


class CompressedState:
    """The state of :func:`compressed_hook`: how gradients are compressed, and the group; None: the default one."""

    def __init__(
        self, compression: type[Compressor] = Compression.fp16, process_group: Optional[dist.ProcessGroup] = None
    ) -> None:
        self.compression = compression
        self.process_group = process_group


def compressed_hook(state: Optional[CompressedState], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients, which travels compressed. ``state`` is a :class:`CompressedState`, or None.

    ``Compression.fp16`` and ``bf16`` mean what they mean in ``horovod.torch.allreduce``: float32 and float64 are
    rounded where they travel from host to host, and nowhere else. A compressor of your own compresses the bucket
    before the operation, and decompresses it after it.
    """
    state = CompressedState() if state is None else state
    buffer = bucket.buffer()
    tensor, context, wire = prepare(state.compression, buffer, Average)
    average = _averaged(tensor, state.process_group, wire)
    if wire:
        return average

    def decompress(future: torch.futures.Future) -> torch.Tensor:
        reduced: Any = state.compression.decompress(future.value(), context)
        return buffer.copy_(reduced) if reduced.data_ptr() != buffer.data_ptr() else buffer

    return average.then(decompress)
