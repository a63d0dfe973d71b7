"""torch.distributed over gorovod: importing this registers the backend ``gorovod``.

    import torch.distributed as dist
    import horovod.torch.distributed

    dist.init_process_group("gorovod")

works under ``horovodrun`` and under ``torchrun``. So does code on top of process groups: DistributedDataParallel, and
FSDP2, DTensor and device meshes if PyTorch has them. You may use Horovod's own functions (``horovod.torch``) as well:
``init_process_group`` also initialises Horovod. ``docs/torch_distributed.md`` has more.

The examples know this module as ``gorovod``, ``torch.distributed`` as ``dist``, and ``torch``, in a job of one rank.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
import warnings
from typing import Any

import torch.distributed as dist

if not dist.is_available():
    raise ImportError("this PyTorch was built without torch.distributed")

from horovod.common.exceptions import HorovodInternalError
from horovod.torch._compiling import never_trace
from horovod.torch.distributed import _callbacks, _join, _quantization, _sets
from horovod.torch.distributed._capabilities import DEVICES
from horovod.torch.distributed._group import ProcessGroup
from horovod.torch.distributed._work import Work
from horovod.torch.distributed.hooks import CompressedState, allreduce_hook, compressed_hook

__all__ = [
    "CompressedState",
    "HorovodInternalError",
    "ProcessGroup",
    "Work",
    "allreduce_hook",
    "compressed_hook",
]

_NAME = "gorovod"


def _create(options: Any, _: Any = None) -> ProcessGroup:
    """Make this process's end of a group, for init_process_group and new_group."""
    ranks = list(options.global_ranks_in_group)
    rank = options.group_rank
    if not ranks:  # the default group
        _join.join(options.store, rank, options.group_size)
        _sets.start()
        _callbacks.Place.begin()
        ranks = list(range(options.group_size))
    if ranks != sorted(ranks):
        raise ValueError(f"the ranks of a gorovod group must ascend: {ranks}")
    if os.environ.get("TORCH_DIST_NAN_CHECK") == "1":
        warnings.warn("TORCH_DIST_NAN_CHECK does not check groups of gorovod: set GOROVOD_NAN_CHECK=warn", stacklevel=2)
    group = ProcessGroup(ranks, rank, _number(options.store, rank), options.timeout)
    group._being_made = True
    return group


# How many groups this process has numbered, as rank 0 of each.
_numbered = itertools.count(1)


def _number(store: dist.Store, rank: int) -> int:
    """A number that the group's members share. It distinguishes two groups with the same lowest rank."""
    if rank == 0:
        store.set("gorovod/number", str(next(_numbered)))
    return int(store.get("gorovod/number"))


def _register() -> None:
    arguments: dict[str, Any] = {"extended_api": True}
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:  # PyTorch 2.0
        arguments["devices"] = list(DEVICES)
    dist.Backend.register_backend(_NAME, _create, **arguments)
    _join.register_rendezvous()
    _callbacks.patch()
    _quantization.patch()


_register()

# DistributedDataParallel and others call groups, hooks and Works between the graphs of a compiled model.
for _module in [name for name in sys.modules if name == __name__ or name.startswith(f"{__name__}.")]:
    never_trace(_module)
