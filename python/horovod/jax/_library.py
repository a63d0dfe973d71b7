"""The handlers that compiled programs call on the CPU and on CUDA's devices: a small library, registered with any JAX.

``libgorovod_jax.so`` is in the folder of ``libgorovod.so``. It gets XLA's functions at run time, so nothing is compiled
on the user's machine. It needs XLA's foreign function interface 0.3, which jaxlib has since 0.9.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from typing import Any, Optional

import jax

from horovod.common import _cells, _lib

FILE_NAME = "libgorovod_jax.so"

# The handlers' names in compiled programs.
COLLECTIVE = "gorovod_collective"
PAD = "gorovod_pad"

# The functions of the library that are the stages of a handler, by platforms and by the handlers' names.
_PLATFORMS = {
    "cpu": {
        COLLECTIVE: {"instantiate": "gorovod_jax_instantiate", "execute": "gorovod_jax_execute"},
        PAD: {"execute": "gorovod_jax_pad"},
    },
    "cuda": {COLLECTIVE: {"instantiate": "gorovod_jax_cuda_instantiate", "execute": "gorovod_jax_cuda_execute"}},
}
_XLA_NAMES = {"cpu": "cpu", "cuda": "CUDA"}


def platform(device: Any = None) -> str:
    """What lowering rules call the platform of a device, such as "cpu" or "cuda"; the default is JAX's own."""
    device = device or jax.local_devices()[0]
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def flags(where: str) -> int:
    """The flags of an operation on copies in host memory of a platform's arrays."""
    return _cells.COPIED if where == "cuda" else 0


@functools.lru_cache(maxsize=None)
def usable(where: str) -> bool:
    """Whether programs for a platform can have the handlers. Where the CPU or CUDA cannot, a warning says why, once.

    A program for CUDA may have parts for the CPU.
    """
    if where not in _PLATFORMS or os.environ.get("GOROVOD_JAX_CALLBACKS") == "1":
        return False
    if where != "cpu" and not usable("cpu"):
        return False
    try:
        problem = _register(where)
    except Exception as e:  # any exception: callbacks work with every version of JAX
        problem = f"{type(e).__name__}: {e}"
    if problem is not None:
        warnings.warn(
            f"JAX {jax.__version__} cannot have collectives as native operations of compiled programs for {where}, "
            f"so they are callbacks into Python, which are slower: {problem}",
            RuntimeWarning,
            stacklevel=2,
        )
    return problem is None


def _register(where: str) -> Optional[str]:
    """Register the handlers of a platform. Returns what is missing, if anything is; raises whatever JAX raises."""
    engine = _lib.path()
    _lib.load()
    file = engine.parent / FILE_NAME
    if not file.is_file():
        return f"{FILE_NAME} is not beside {engine}"
    shim = ctypes.CDLL(str(file))
    shim.gorovod_jax_bind.restype = ctypes.c_char_p
    missing = shim.gorovod_jax_bind(str(engine).encode())
    if missing is not None:
        return f"{engine} and {file} do not belong together: {missing.decode()} is missing"
    for target, stages in _PLATFORMS[where].items():
        handlers = {stage: jax.ffi.pycapsule(getattr(shim, symbol)) for stage, symbol in stages.items()}
        jax.ffi.register_ffi_target(target, handlers, platform=_XLA_NAMES[where])
    return None
