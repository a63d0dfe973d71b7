"""The work of :func:`horovod.runner.run`: the launcher starts a Python for each rank (module ``run_task``).

The function travels as each process's stdin; the results return over a third stream from the launcher. So nothing
listens, and other hosts need no more than for ``horovodrun``. If mpirun starts the processes, they ask this one instead
(module ``_handover``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Callable, Optional, Sequence

from horovod.runner.common.util.hosts import parse_host_files


@dataclasses.dataclass
class Settings:
    """The arguments of ``run`` that are meant for the launcher."""

    num_proc: int
    min_num_proc: Optional[int]
    max_num_proc: Optional[int]
    slots: Optional[int]
    reset_limit: Optional[int]
    cooldown_range: Optional[Sequence[int]]
    hosts: Optional[str]
    hostfile: Optional[str]
    host_discovery_script: Optional[str]
    start_timeout: Optional[int]
    ssh_port: Optional[int]
    ssh_identity_file: Optional[str]
    disable_cache: Optional[bool]
    output_filename: Optional[str]
    verbose: Optional[int]
    use_gloo: Optional[bool]
    use_mpi: Optional[bool]
    mpi_args: Optional[str]
    network_interfaces: Optional[Sequence[str]]
    executable: Optional[str]

    @property
    def elastic(self) -> bool:
        """Whether ranks may come and go."""
        return self.host_discovery_script is not None or self.min_num_proc is not None

    def check(self) -> None:
        """Raise ValueError for arguments that exclude one another."""
        if self.hosts is not None and self.hostfile is not None:
            raise ValueError("Argument hosts and hostfile only allow one provided.")
        if self.use_gloo and self.use_mpi:
            raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
        if self.num_proc < 1:
            raise ValueError(f"num_proc={self.num_proc}: at least 1 process is needed")

    def host_names(self) -> list[str]:
        """The hosts of the job, as far as this process can tell. The launcher checks them."""
        entries = self.hosts or "localhost"
        if self.hostfile is not None:
            with contextlib.suppress(OSError):
                entries = parse_host_files(self.hostfile)
        return [entry.strip().rpartition(":")[0].strip("[]") or entry.strip() for entry in entries.split(",")]

    def options(self) -> list[str]:
        """The launcher's options."""
        options = ["--num-proc", str(self.num_proc)]
        for name, value in (
            ("min-np", self.min_num_proc),
            ("max-np", self.max_num_proc),
            ("slots-per-host", self.slots),
            ("reset-limit", self.reset_limit),
            ("hosts", self.hosts),
            ("hostfile", self.hostfile),
            ("host-discovery-script", self.host_discovery_script),
            ("start-timeout", self.start_timeout),
            ("ssh-port", self.ssh_port),
            ("ssh-identity-file", self.ssh_identity_file),
            ("output-filename", self.output_filename),
            ("mpi-args", self.mpi_args),
        ):
            if value is not None:
                options.append(f"--{name}={value}")
        if self.cooldown_range is not None:
            options += ["--blacklist-cooldown-range", *map(str, self.cooldown_range)]
        if self.network_interfaces:
            options.append("--network-interfaces=" + ",".join(self.network_interfaces))
        for name, on in (("disable-cache", self.disable_cache), ("gloo", self.use_gloo), ("mpi", self.use_mpi)):
            if on:
                options.append(f"--{name}")
        if self.verbose:
            options.append("--verbose")
        return options


def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], settings: Settings) -> list[Any]:
    """Run the job, and return the results by rank."""
    if not callable(func):
        raise TypeError(f"horovod.run calls a function in each process, but {func!r} is not callable")
    settings.check()
    try:
        import cloudpickle
    except ImportError as e:
        raise ImportError("horovod.run sends functions with cloudpickle: pip install cloudpickle") from e
    # A process reads sys.path first, because unpickling the function imports modules from there.
    task = pickle.dumps((sys.path, cloudpickle.dumps((func, args, kwargs))))
    with tempfile.TemporaryDirectory(prefix="horovod-run-") as folder:
        results = Path(folder, "results")
        results.mkdir()
        report = Path(folder, "report")
        options = [*settings.options(), f"--report={report}"]
        if settings.use_mpi:
            code = _launch_by_mpi(options, settings, task, results)
        else:
            file = Path(folder, "task")
            file.write_bytes(task)
            code = _launch([*options, f"--input={file}", f"--results={results}"], settings.executable)
        why, stderr = _why(report)
        return _collect(code, results, settings, why, stderr)


def _launch_by_mpi(options: list[str], settings: Settings, task: bytes, results: Path) -> int:
    """As :func:`_launch`, for processes that mpirun starts. They ask for ``task``."""
    from horovod.runner._handover import Handover

    handover = Handover(task, results, settings.host_names())
    try:
        return _launch(options, settings.executable, handover.environ())
    finally:
        handover.close()


def _launch(options: list[str], executable: Optional[str], variables: Optional[dict[str, str]] = None) -> int:
    """Run the launcher to its end. An interrupt ends it early, and so does the end of this process.

    ``variables`` are added to the environment.
    """
    from horovod import _program

    # The launcher ends when the other end of this pipe is closed.
    theirs, lifeline = os.pipe()
    try:
        # A session of its own: Ctrl-C at the terminal must not reach the launcher twice, because a second one kills.
        launcher = subprocess.Popen(
            ["horovodrun", *options, f"--lifeline={theirs}", "--"]
            + [executable or sys.executable, "-m", "horovod.runner.run_task"],
            executable=str(_program.path()),
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs],
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        while True:
            try:
                return launcher.wait()
            except KeyboardInterrupt:
                launcher.send_signal(signal.SIGINT)
                launcher.wait()
                raise
    finally:
        os.close(lifeline)


def _why(report: Path) -> tuple[str, str]:
    """Why the job failed, in the launcher's words, and the last stderr lines of the first process that failed.

    Raises ValueError if the launcher has refused to start the job.
    """
    try:
        said = json.loads(report.read_bytes())
    except FileNotFoundError:
        return "", ""  # the job succeeded, or the launcher was killed
    if said["refused"]:
        raise ValueError(said["text"])
    return said["text"], said["stderr"]


def _collect(code: int, folder: Path, settings: Settings, why: str, stderr: str = "") -> list[Any]:
    """The results that were written, or the error if one was."""
    import cloudpickle

    values: dict[int, Any] = {}
    failures: dict[str, str] = {}
    written: dict[str, int] = {}  # by rank: when the launcher received the error, in nanoseconds
    for file in folder.iterdir():  # its name is the rank, or that of an elastic worker that lost its rank to another
        try:
            kind, content = pickle.loads(file.read_bytes())
        except (EOFError, pickle.UnpicklingError):
            continue  # the process ended before it had a result
        if kind == "error":
            failures[file.name] = content
            written[file.name] = file.stat().st_mtime_ns
        elif file.name.isdigit():
            values[int(file.name)] = content
    if code != 0:
        text = (
            "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be "
            f"terminated. The launcher's exit code is {code}"
        )
        text += f": {why}" if why else "; its last message may say more."
        if failures:
            # HorovodInternalError is a consequence: another rank's error is the cause.
            rank = min(failures, key=lambda r: ("HorovodInternalError" in failures[r], written[r], r))
            who = f"Rank {rank}" if rank.isdigit() else rank.replace(".", " ").capitalize()
            text += f"\n{who} raised:\n{failures[rank]}"
        elif stderr:
            text += "\nThe last lines of its stderr:\n" + textwrap.indent(stderr, "  ")
        raise RuntimeError(text)
    wanted = settings.min_num_proc or settings.num_proc if settings.elastic else settings.num_proc
    ranks = sorted(values)[:wanted]
    if len(ranks) < wanted:
        missing = sorted(set(range(wanted)) - set(values))
        who = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} have"
        raise RuntimeError(
            f"{who} ended with code 0, but without a result: the function must return, not end the process "
            "(sys.exit, os._exit)"
        )
    return [cloudpickle.loads(values[rank]) for rank in ranks]
