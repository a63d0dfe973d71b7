"""A report of a node's Python, where gorovod may be missing. Its function is sent whole, not by name."""

from __future__ import annotations

from typing import Any, Callable


def portable() -> Callable[[], tuple[str, str, str, str]]:
    """A function for any node: its Python's version, horovod's, horovod's folder, and why that is unusable."""

    def inspect() -> tuple[str, str, str, str]:
        import importlib
        import os
        import platform

        version = package = trouble = ""
        try:
            horovod: Any = importlib.import_module("horovod")
            version, package = str(horovod.__version__), os.path.dirname(horovod.__file__)
            importlib.import_module("horovod.ray._facts")
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
        return platform.python_version(), version, package, trouble

    # A function without a module travels by value.
    inspect.__module__ = "__main__"
    return inspect
