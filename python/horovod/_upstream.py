"""The damage that Horovod itself, whose package has the same name, can do to this installation of gorovod."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import Optional

PACKAGE = "horovod/__init__.py"
_FOLDER = Path(__file__).parent
_AGAIN = "pip uninstall horovod gorovod, then install gorovod again"


def problem() -> Optional[str]:
    """The problem, and what to do; None if there is none."""
    return conflict() or _removed() or _left()


@functools.lru_cache(maxsize=None)
def conflict() -> Optional[str]:
    """The problem if the distribution ``horovod`` is installed, too, and what to do; None if it is not.

    Both have a folder ``horovod``. In one site-packages, the later installation has overwritten files of the other. In
    two, the order of ``sys.path`` decides which one is imported. A distribution of that name without the package, which
    some make to satisfy a requirement, does no harm.
    """
    if not any(map(_may_hold, sys.path)):
        return None
    from importlib import metadata  # imported only here, because the import takes tens of milliseconds in every rank

    try:
        upstream = metadata.distribution("horovod")
    except metadata.PackageNotFoundError:
        return None
    files = upstream.files
    if files is not None and PACKAGE not in map(str, files):
        return None
    return (
        f"Horovod {upstream.version} is installed too, at {upstream.locate_file('horovod')}. gorovod takes its place "
        f"under the same name, and the two cannot be used side by side: uninstall both ({_AGAIN})."
    )


def _removed() -> Optional[str]:
    """Whether files of gorovod are gone. pip removes them with a Horovod that had files of the same names."""
    for name in ("__init__.py", "torch/__init__.py", "tensorflow/__init__.py"):
        if not (_FOLDER / name).is_file():
            return f"{_FOLDER / name} is missing. pip removes it with a Horovod that was there before: {_AGAIN}"
    return None


def _left() -> Optional[str]:
    """Whether compiled files of Horovod are in the package's folders."""
    for folder in ("torch", "tensorflow", "mxnet"):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(_FOLDER / folder)):
                if name.startswith("mpi_lib") and name.endswith(".so"):
                    file = _FOLDER / folder / name
                    return f"{file} is a file that Horovod has left, which pip does not know: delete it; then {_AGAIN}"
    return None


def _may_hold(folder: str) -> bool:
    """Whether a folder of ``sys.path`` seems to have the metadata of a distribution ``horovod``."""
    with contextlib.suppress(OSError):
        return any(
            name.startswith("horovod-") and name.endswith((".dist-info", ".egg-info"))
            for name in os.listdir(folder or ".")
        )
    return False
