"""What to say where a front end's framework is not installed: which Python lacks it, and how it gets it."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys


def need(front_end: str, module: str, package: str) -> None:
    """Raise ModuleNotFoundError if this Python lacks the module that a front end is for.

    Args:
        front_end: such as ``"horovod.torch"``, for the message.
        module: such as ``"torch"``; it is not imported.
        package: what pip installs, such as ``"torch"``.

    Raises:
        ModuleNotFoundError: the module is not there. Its message names this Python.
    """
    if module in sys.modules or importlib.util.find_spec(module) is not None:
        return
    python = sys.executable or "this Python"
    raise ModuleNotFoundError(
        f"{front_end} needs {package}, and {python} (Python {platform.python_version()}) does not have it: install it "
        f"with `{python} -m pip install {package}`, or start the program with the Python that has it",
        name=module,
    )
