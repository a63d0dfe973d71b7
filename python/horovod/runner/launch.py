"""The launcher's command line, for programs that call it as a function."""

from __future__ import annotations

from typing import NoReturn


def run_commandline() -> NoReturn:
    """Become ``horovodrun`` with this process's arguments, ``sys.argv[1:]``."""
    from horovod import _program

    _program.horovodrun()
