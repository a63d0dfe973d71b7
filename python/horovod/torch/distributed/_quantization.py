"""What PyTorch's quantization hooks need: some versions (2.6 is one) read what all ranks have sent from the future of
``all_gather``, as NCCL fills it: one tensor with a row for each rank. Other futures, as Gloo's, have a list of tensors.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks

from horovod.common import _patches
from horovod.torch.distributed._work import Work


class _Stacked:
    """A Work of ``all_gather`` whose future is as NCCL's."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def get_future(self) -> torch.futures.Future:
        return self._work.get_future().then(lambda future: [torch.stack(future.value())])


class _Distributed:
    """``torch.distributed`` as the hooks see it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    def all_gather(self, *arguments: Any, **options: Any) -> Any:
        work = dist.all_gather(*arguments, **options)
        return _Stacked(work) if isinstance(work, Work) else work


def patch() -> None:
    """Replace the hooks' ``dist``."""
    _patches.replace("torch-futures", quantization_hooks, "dist", _Distributed())
