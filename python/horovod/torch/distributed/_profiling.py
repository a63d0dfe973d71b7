"""Events for PyTorch's profiler: the calls that start operations, and those that wait for them.

Other backends have one event for an operation, which ends with it on whichever thread. If the profile has ended before,
that writes to freed memory. Here each event begins and ends within one call.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

enabled = torch._C._autograd._profiler_enabled  # on this thread

_nothing = contextlib.nullcontext()


def event(name: str) -> Any:
    """The block is an event ``gorovod:name`` of the profile, if there is one."""
    return torch.autograd.profiler.record_function(f"gorovod:{name}") if enabled() else _nothing
