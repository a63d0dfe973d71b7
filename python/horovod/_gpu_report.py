"""The parts of ``gorovod doctor --gpu``: which GPUs, CUDA and NCCL a process of this Python can use.

Each part is printed by a process of its own, since the libraries that it asks may hang or end the process.
``gorovod doctor`` starts them, and says so if one does.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Optional

from horovod.common import _lib


def _python() -> None:
    """Print which Python this is, and that it has gorovod's library."""
    version = _lib.load().gorovod_version().decode()
    print(f"Python: {sys.executable}, {platform.python_version()}, with gorovod {version}")


def _torch() -> None:
    """Print PyTorch's report about itself."""
    print("PyTorch: ", end="", flush=True)
    try:
        import torch
    except ModuleNotFoundError as e:
        print("none" if e.name == "torch" else f"cannot be imported ({e})")
        return
    except Exception as e:  # one of its libraries is missing or broken
        print(f"cannot be imported ({e})")
        return
    if torch.version.cuda is None:
        print(f"{torch.__version__}, without CUDA: install a build for CUDA to use its GPUs")
        return
    print(f"{torch.__version__}, for CUDA {torch.version.cuda}, which sees ", end="", flush=True)
    print(f"{torch.cuda.device_count() if torch.cuda.is_available() else 0} GPUs")


def _jax() -> None:
    """Print JAX's report about itself."""
    print("JAX: ", end="", flush=True)
    try:
        import jax
    except ModuleNotFoundError as e:
        print("none" if e.name == "jax" else f"cannot be imported ({e})")
        return
    except Exception as e:
        print(f"cannot be imported ({e})")
        return
    print(f"{jax.__version__}, which sees ", end="", flush=True)
    seen = _jax_gpus(jax)
    has_plugin = any(find_spec(f"jax_cuda{major}_plugin") for major in (12, 13))
    print(f"{seen} GPUs of CUDA" + ("" if seen or has_plugin else ": install jax[cuda12] or jax[cuda13] to use them"))


def _jax_gpus(jax: ModuleType) -> int:
    """How many GPUs JAX sees. This starts its CUDA, if it has one."""
    try:
        return len(jax.devices("cuda"))
    except RuntimeError:  # there is no such backend, or it does not start
        return 0


def _cuda() -> None:
    """Print what the process of a framework has of CUDA."""
    _load_framework()
    _lib.load().gorovod_cuda_report(1, 2)


def _nccl() -> None:
    """Print what the process of a framework has of NCCL, and how its GPU tensors travel."""
    _load_framework()
    _lib.load().gorovod_nccl_report(1, 2)


def _load_framework() -> None:
    """Import PyTorch if it is built for CUDA, else JAX, so that the process has its libraries."""
    if _torch_for_cuda() is None:
        try:
            import jax

            _jax_gpus(jax)
        except Exception:  # the part about JAX says it
            pass


def _trial() -> None:
    """Print what a job of one rank finds on the first GPU."""
    torch = _torch_for_cuda()
    if torch is None or not torch.cuda.is_available():
        print("Trial: none, since PyTorch sees no GPU")
        return
    from horovod.torch import _gpu_trial

    _gpu_trial.main()


def _torch_for_cuda() -> Optional[ModuleType]:
    """Return PyTorch, if it is there and built for CUDA."""
    try:
        import torch
    except Exception:  # the part about PyTorch says it
        return None
    return torch if torch.version.cuda is not None else None


_PARTS = {"python": _python, "torch": _torch, "jax": _jax, "cuda": _cuda, "nccl": _nccl, "trial": _trial}


def main(part: str) -> None:
    """Print a part."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave other processes the GPU's memory
    _PARTS[part]()
    sys.stdout.flush()
