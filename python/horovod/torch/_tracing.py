"""Whether PyTorch records the caller's operations into a program, from which a collective would be missing.

``torch.jit.trace`` and ``make_fx`` record what PyTorch itself does. They would keep the memory that a collective fills,
and lose the collective: the program would return whatever that memory holds.
"""

from __future__ import annotations

import torch

_recording = torch._C._get_tracing_state
_modes = getattr(torch._C, "_len_torch_dispatch_stack", int)  # int() is 0


def check() -> None:
    """Raise RuntimeError while ``torch.jit.trace`` or ``make_fx`` records the caller."""
    if _recording() is not None:
        _refuse("torch.jit.trace")
    for place in range(_modes()):
        if type(torch._C._get_dispatch_stack_at(place)).__name__ == "ProxyTorchDispatchMode":
            _refuse("make_fx")


def _refuse(recorder: str) -> None:
    raise RuntimeError(
        f"{recorder} records this call, but its program cannot hold a collective: it would be lost. Trace the parts of "
        "the model between the collectives, or use torch.compile."
    )
