"""The compiled short way to the engine, ``libgorovod_python.so``, for the plain case: see ``shim/python/calls.c``.

:func:`load` returns the module, or None where there is none: then everything goes through ctypes, as it does for
tensors and arguments that are not plain. Both ways have the same results and errors, and may be mixed.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Optional

from horovod.common import _cells, _lib

FILE_NAME = "libgorovod_python.so"
VARIABLE = "GOROVOD_PURE_PYTHON"

# The functions of libgorovod.so that the extension calls, in the order of shim/python/cells.h.
_FUNCTIONS = ("enqueue", "enqueue_group", "run", "wait", "received_splits", "release", "output", "given_output")


def why_not() -> Optional[str]:
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


def _import(file: Path) -> Any:
    name = f"{__package__}._calls"
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def find() -> Any:
    """The extension, ready for a front end's setup; or None: it is not there, not for this interpreter, or not wanted.

    Raises ImportError if it does not belong to this version.
    """
    if os.environ.get(VARIABLE) == "1" or why_not() is not None:
        return None
    file = _lib.path().with_name(FILE_NAME)
    if not file.is_file():
        return None
    library = _lib.load()
    functions = tuple(ctypes.cast(library[f"gorovod_{name}"], ctypes.c_void_p).value for name in _FUNCTIONS)
    try:
        module = _import(file)
        module.setup_engine(functions, _cells.LAYOUT, _lib.error)
    except (ImportError, ValueError) as e:
        raise ImportError(f"{file}: {e}; reinstall the package, or set {VARIABLE}=1") from e
    os.register_at_fork(after_in_child=lambda: module.enable(False))
    return module


load = functools.lru_cache(maxsize=None)(find)
