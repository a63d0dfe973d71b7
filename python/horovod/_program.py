"""The commands ``gorovod`` and ``horovodrun``: one native program, whose name decides what it does.

It is looked for at ``horovod/bin/gorovod`` (its place in a wheel), then at ``build/gorovod`` of the checkout that has
this file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from horovod._upstream import problem


def path() -> Path:
    """Path of the program. Exits with advice if there is none."""
    package = Path(__file__).resolve().parent
    candidates = (package / "bin" / "gorovod", package.parent.parent / "build" / "gorovod")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    sys.exit(f"gorovod: the program is missing at {candidates[0]}: reinstall the package, or run `make build`")


def _become(name: str) -> NoReturn:
    """Continue as the program, in this process, so that signals and the exit code are the program's."""
    found = problem()
    if found is not None:
        print(f"{name}: warning: {found}", file=sys.stderr, flush=True)
    os.execv(path(), [name, *sys.argv[1:]])


def gorovod() -> NoReturn:
    """The command ``gorovod``."""
    _become("gorovod")


def horovodrun() -> NoReturn:
    """The command ``horovodrun``."""
    _become("horovodrun")
