"""The handlers that compiled programs call on the CPU: one small library, which the installed JAX registers.

``libgorovod_jax.so`` is in the folder of ``libgorovod.so``. It gets XLA's functions at run time, so nothing is compiled
on the user's machine. It needs XLA's foreign function interface 0.3, which jaxlib has since 0.9.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from typing import Optional

import jax

from horovod.common import _lib

FILE_NAME = "libgorovod_jax.so"

# The handlers' names in compiled programs.
COLLECTIVE = "gorovod_collective"
PAD = "gorovod_pad"


@functools.lru_cache(maxsize=None)
def usable() -> bool:
    """Whether programs for the CPU can use the handlers. If not, a warning says why, once."""
    if os.environ.get("GOROVOD_JAX_CALLBACKS") == "1":
        return False
    try:
        problem = _register()
    except Exception as e:  # any exception: callbacks work with every version of JAX
        problem = f"{type(e).__name__}: {e}"
    if problem is not None:
        warnings.warn(
            f"JAX {jax.__version__} cannot have collectives as native operations of compiled programs, so they are "
            f"callbacks into Python, which are slower: {problem}",
            RuntimeWarning,
            stacklevel=2,
        )
    return problem is None


def _register() -> Optional[str]:
    """Register the handlers. Returns what is missing, if anything is; raises whatever JAX raises."""
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
    capsule = jax.ffi.pycapsule
    jax.ffi.register_ffi_target(
        COLLECTIVE,
        {"instantiate": capsule(shim.gorovod_jax_instantiate), "execute": capsule(shim.gorovod_jax_execute)},
        platform="cpu",
    )
    jax.ffi.register_ffi_target(PAD, capsule(shim.gorovod_jax_pad), platform="cpu")
    return None
