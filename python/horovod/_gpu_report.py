"""The output of ``gorovod doctor --gpu``: which GPUs, CUDA and NCCL a process of this Python can use.

It imports PyTorch, whose NCCL is then that of the process. If PyTorch sees a GPU, a job of one rank tries it.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

from horovod.common import _lib

_LONGEST_TRIAL_S = 300


def _pytorch() -> str:
    """PyTorch's report about itself."""
    try:
        import torch
    except ModuleNotFoundError:
        return "PyTorch: none"
    except Exception as e:  # one of its libraries is missing or broken
        return f"PyTorch: cannot be imported ({e})"
    if torch.version.cuda is None:
        return f"PyTorch: {torch.__version__}, without CUDA: install a build for CUDA to use its GPUs"
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"PyTorch: {torch.__version__}, for CUDA {torch.version.cuda}, which sees {seen} GPUs"


def report() -> str:
    """Describe the GPUs, CUDA and NCCL of this process, and how its GPU tensors travel."""
    lines = _pytorch()
    library = _lib.load()
    text = library.gorovod_gpu_report()
    if not text:
        raise RuntimeError(library.gorovod_last_error().decode())
    try:
        return f"{lines}\n{ctypes.string_at(text).decode(errors='replace')}"
    finally:
        library.gorovod_free(text)


def trial() -> str:
    """Say what a job of one rank finds on the first GPU. Its process is its own, because it may die or hang."""
    try:
        import torch

        seen = torch.cuda.is_available()
    except Exception:  # the report says what went wrong
        seen = False
    if not seen:
        return "Trial: none, since PyTorch sees no GPU\n"
    command = [sys.executable, "-m", "horovod.torch._gpu_trial"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_LONGEST_TRIAL_S)
    except subprocess.TimeoutExpired as e:
        found = (e.stdout or b"").decode(errors="replace")
        return f"{found}WRONG: the trial has not ended within {_LONGEST_TRIAL_S} s\n"
    found = done.stdout.decode(errors="replace")
    return found if done.returncode == 0 else f"{found}WRONG: the trial has ended with status {done.returncode}\n"


if __name__ == "__main__":
    print(report(), end="", flush=True)
    print(trial(), end="")
