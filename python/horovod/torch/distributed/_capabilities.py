"""What PyTorch asks a process group about itself: its devices, and what it supports.

Since PyTorch 2.0 a group has a backend for each type of device, and PyTorch asks the backends. This group has none, and
answers for them: it is its own backend.
"""

from __future__ import annotations

import datetime
from typing import Any, Callable, NoReturn

import torch
import torch.distributed as dist

from horovod.common._job import basics
from horovod.torch.distributed._base import Base

# For which devices torch.distributed registers the backend. The first one is for what has no device, such as objects.
DEVICES = ("cpu", "cuda")


def _groups() -> dict[dist.ProcessGroup, tuple[str, dist.Store]]:
    """torch.distributed's table of the groups that it has made, with their stores."""
    c10d = dist.distributed_c10d
    return c10d._world.pg_map if hasattr(c10d, "_world") else c10d._pg_map  # PyTorch 2.0


def _refusal(name: str, advice: str) -> Callable[..., NoReturn]:
    """A method that PyTorch's groups have and this one has not."""

    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: process groups of gorovod do not have it; {advice}")

    refuse.__name__, refuse.__doc__ = name, f"Not supported: {advice}."
    return refuse


_MEMBERSHIP = "for ranks that come and go use horovodrun --min-np with horovod.torch.elastic, or horovod.torch.torchft"
_HOOKS = "use torch.profiler, or the timeline (horovodrun --timeline-filename)"
_MEMORY = "tensors need no memory of the backend's: use torch.empty"


class Capabilities(Base):
    """The part of a group that says what it supports."""

    _being_made = False  # by torch.distributed

    @property
    def _device_types(self) -> list[torch.device]:
        """The types of devices that this process has, and whose tensors the group takes.

        There are none as long as torch.distributed is making the group. PyTorch 2.15 asks then whether its flight
        recorder can follow the group in C++, which needs backends.
        """
        if self._being_made:
            if self not in _groups():
                return []
            self._being_made = False
        return [torch.device(device) for device in DEVICES if device == "cpu" or torch.cuda.is_available()]

    def _get_backend(self, device: torch.device) -> Any:
        return self

    get_backend = _get_backend

    @property
    def options(self) -> Any:
        """The group's time-out, in PyTorch's form: ``options._timeout``."""
        return torch._C._distributed_c10d.Backend.Options("gorovod", self._timeout)

    def get_group_store(self) -> dist.Store:
        """The store that torch.distributed has made for the group."""
        return _groups()[self][1]

    # What PyTorch asks before it calls one of the methods below.

    supports_coalescing = False  # batch_isend_irecv shall give each message a Work of its own
    supports_splitting = False
    supports_shrinking = False
    supports_reconfigure = False
    supports_window = False
    supports_abort_hooks = False
    supports_completion_hooks = False
    use_pg_for_symm_mem_rendezvous = False
    _supports_time_estimate = False

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """False: tensors need no memory of the backend's."""
        return False

    def _has_hooks(self) -> bool:
        return False

    def eager_connect_single_device(self, device: Any = None) -> None:
        """Nothing to do: the ranks are connected since ``init_process_group``."""

    split_group = _refusal("split_group", "call torch.distributed.new_group on all ranks")
    split = _refusal("split", "call torch.distributed.new_group on all ranks")
    merge_remote_group = _refusal("merge_remote_group", _MEMBERSHIP)
    merge = _refusal("merge", _MEMBERSHIP)
    shrink = _refusal("shrink", _MEMBERSHIP)
    reconfigure = _refusal("reconfigure", _MEMBERSHIP)
    get_reconfigure_handle = _refusal("get_reconfigure_handle", _MEMBERSHIP)
    suspend = _refusal("suspend", _MEMBERSHIP)
    resume = _refusal("resume", _MEMBERSHIP)
    new_window = _refusal("new_window", "use send and recv")
    register_pre_hook = _refusal("register_pre_hook", _HOOKS)
    unregister_pre_hook = _refusal("unregister_pre_hook", _HOOKS)
    register_post_hook = _refusal("register_post_hook", _HOOKS)
    unregister_post_hook = _refusal("unregister_post_hook", _HOOKS)
    register_abort_hook = _refusal("register_abort_hook", "the error of an operation names the rank that has gone")
    unregister_abort_hook = _refusal("unregister_abort_hook", "the error of an operation names the rank that has gone")
    get_error = _refusal("get_error", "operations raise their errors when they are waited for")
    _register_on_completion_hook = _refusal("_register_on_completion_hook", "use the future of a Work")
    _wait_for_pending_works = _refusal("_wait_for_pending_works", "wait for the Works")
    _enable_collectives_timing = _refusal("_enable_collectives_timing", _HOOKS)
    _start_time_estimate = _refusal("_start_time_estimate", "measure with gorovod bench")
    _end_time_estimate = _refusal("_end_time_estimate", "measure with gorovod bench")
    allocate_tensor = _refusal("allocate_tensor", _MEMORY)
    memory_stats = _refusal("memory_stats", _MEMORY)
    mem_allocator = property(_refusal("mem_allocator", _MEMORY))
    setUsePgForSymmMemRendezvous = _refusal("setUsePgForSymmMemRendezvous", "symmetric memory needs NCCL")  # noqa: N815
    allreduce_sparse = _refusal("allreduce_sparse", "use horovod.torch.sparse_allreduce_async, or a dense tensor")

    def abort(self) -> None:
        """End the engine, and so the operations of all groups of this process, here and on the other ranks."""
        basics.shutdown()

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Set the time-out of later operations."""
        self._timeout = timeout
