"""The commands ``gorovod`` and ``horovodrun``: one native program, which goes by the name that it is called by.

It is looked for at ``horovod/bin/gorovod`` (where a wheel has it), then at ``build/gorovod`` of the checkout that this
file is in.
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
    """Go on as the program, in this process: signals and exit code are its own."""
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
