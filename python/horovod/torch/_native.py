"""The compiled short way to the engine, ``libgorovod_python.so``, for the plain case: see ``shim/python/calls.c``.

:func:`find` returns its functions, or None where there is none: then everything goes through ctypes, as it does for
tensors and arguments that are not plain. Both ways have the same results and errors, and may be mixed.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Callable, Optional

import torch

from horovod.common import _cells, _lib

FILE_NAME = "libgorovod_python.so"
VARIABLE = "GOROVOD_PURE_PYTHON"

# The engine's functions that it calls, in the order of struct engine.
_FUNCTIONS = ("enqueue", "enqueue_group", "wait", "received_splits", "release", "given_output")


def _why_not() -> Optional[str]:
    """Why this interpreter cannot import the extension; None if it can."""
    if sys.implementation.name != "cpython":
        return f"it is for CPython, not for {sys.implementation.name}"
    if sys.version_info < (3, 10):
        return "it is for Python 3.10 and later"
    if sys.version_info >= (3, 13) and sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it is for interpreters with a GIL"
    if hasattr(sys, "getobjects"):
        return "it is not for interpreters that trace references"
    return None


def _load(file: Path) -> Any:
    name = f"{__package__}._calls"
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def find(
    pool: _cells.Pool,
    kinds: dict[str, int],
    names: dict[str, Any],
    group: type,
    get: Any,
    locked: Callable[[], bool],
    dtypes: Any,
) -> Any:
    """The extension, ready for use, or None: it is not there, not for this interpreter, or not wanted.

    ``pool`` is that of operations, ``names`` the globals of the module with ``_handles`` and ``_handle_map``, ``group``
    the class of groups, ``get`` the ``get`` of operations that the extension submits, ``locked`` whether another thread
    is changing operations of ``_handle_map``. ``dtypes`` has the engine's number of a ``torch.dtype``.
    """
    if os.environ.get(VARIABLE) == "1" or _why_not() is not None:
        return None
    file = _lib.path().with_name(FILE_NAME)
    if not file.is_file():
        return None
    library, tensor = _lib.load(), torch.Tensor
    functions = tuple(ctypes.cast(library[f"gorovod_{name}"], ctypes.c_void_p).value for name in _FUNCTIONS)
    storage = getattr(tensor, "untyped_storage", None) or tensor._storage
    try:
        module = _load(file)
        module.setup(
            functions, _cells.LAYOUT, _lib.error, _lib.WAIT_SLICE_MS,
            pool.cell_class, pool.free, pool.grow, kinds, names, names["_handle_map"], group, get, locked,
            (tensor, torch.nn.Parameter), (tensor.data_ptr, tensor.is_neg, tensor.is_contiguous, storage),
            getattr(tensor, "__dlpack_c_exchange_api__", None), dtypes,
        )  # fmt: skip
    except (ImportError, ValueError) as e:
        raise ImportError(f"{file}: {e}; reinstall the package, or set {VARIABLE}=1") from e
    os.register_at_fork(after_in_child=lambda: module.enable(False))
    return module
