"""The launcher's command line, for programs that call it as a function."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from typing import Any, NoReturn, Optional, Sequence

# Horovod's name of an option's value, if it is not the option's own name.
_NAMES = {
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "slots_per_host": "slots",
    "blacklist_cooldown_range": "cooldown_range",
    "network_interfaces": "nics",
    "gloo": "use_gloo",
    "mpi": "use_mpi",
    "tcp": "tcp_flag",
}


def parse_args(argv: Optional[Sequence[str]] = None) -> Namespace:
    """Read the command line of ``horovodrun``.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        The options, by Horovod's names. An option that was not given is None, a flag False; ``nics`` is a set,
        ``command`` a list, empty if there is no command.

    Raises:
        ValueError: a number is out of its range.
        SystemExit: with 2, after a message, for arguments that make no sense; with 0 for ``--help`` and the like. With
            a text, if the launcher is missing.

    Example:
        >>> from horovod.runner.launch import parse_args
        >>> args = parse_args(["-np", "2", "python", "train.py"])
        >>> args.num_proc, args.command
        (2, ['python', 'train.py'])
    """
    from horovod import _program

    arguments = sys.argv[1:] if argv is None else list(argv)
    said = subprocess.run(
        ["horovodrun", "--parsed", *arguments], executable=str(_program.path()), stdout=subprocess.PIPE, text=True
    )
    if said.returncode != 0:
        sys.exit(said.returncode)
    if not said.stdout.startswith("{"):
        print(said.stdout, end="")
        sys.exit(0)
    values: dict[str, Any] = json.loads(said.stdout)
    if "out_of_range" in values:
        raise ValueError(values["out_of_range"])
    args = Namespace(run_func=None, use_jsrun=False)
    for name, value in values.items():
        setattr(args, _NAMES.get(name, name), None if value in ("", []) else value)
    args.command = values["command"] or []
    args.nics = set(values["network_interfaces"] or ()) or None
    args.no_stall_check = None if values["stall_check"] is None else not values["stall_check"]
    return args


def run_commandline() -> NoReturn:
    """Become ``horovodrun`` with this process's arguments, ``sys.argv[1:]``. This function does not return.

    Raises:
        SystemExit: the launcher is missing; the text says what to do.

    Example:
        >>> from horovod.runner.launch import run_commandline
        >>> run_commandline()  # doctest: +SKIP
    """
    from horovod import _program

    _program.horovodrun()
