"""Jobs that ``mpirun`` starts, by ``horovodrun --mpi``; and the kind of the installed ``mpirun``."""

from __future__ import annotations

import os
import subprocess
from typing import Any, Mapping, Optional, Sequence, Union

# Horovod's name of each MPI, and words in the output of its mpirun --version; the first match counts.
_KINDS = (
    ("SpectrumMPI", ("IBM Spectrum MPI",)),
    ("OpenMPI", ("Open MPI", "OpenRTE")),
    ("MPICH", ("MPICH", "HYDRA")),
    ("IntelMPI", ("Intel(R) MPI",)),
)


def _kind(env: Optional[Mapping[str, str]]) -> Optional[str]:
    """The MPI of the first ``mpirun`` in the PATH of ``env``; None if there is none that Horovod knows."""
    environment = dict(os.environ if env is None else env)
    environment.setdefault("PATH", os.defpath)
    try:
        said = subprocess.run(
            ["/bin/sh", "-c", "mpirun --version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=20,
        )
    except subprocess.TimeoutExpired:
        return None
    if said.returncode != 0:
        return None
    return next((kind for kind, names in _KINDS if any(name in said.stdout for name in names)), None)


def mpi_available(env: Optional[Mapping[str, str]] = None) -> bool:
    """Tell whether ``horovodrun --mpi`` can find an ``mpirun`` that it knows.

    Args:
        env: the environment to look in; by default that of this process.

    Returns:
        Whether it can.

    Example:
        >>> from horovod.runner.mpi_run import mpi_available
        >>> mpi_available({"PATH": "/nowhere"})
        False
    """
    return _kind(env) is not None


def is_open_mpi(env: Optional[Mapping[str, str]] = None) -> bool:
    """Tell whether ``mpirun`` is Open MPI's.

    Args:
        env: the environment to look in; by default that of this process.

    Returns:
        Whether it is.

    Example:
        >>> from horovod.runner.mpi_run import is_open_mpi
        >>> is_open_mpi({"PATH": "/nowhere"})
        False
    """
    return _kind(env) == "OpenMPI"


def is_spectrum_mpi(env: Optional[Mapping[str, str]] = None) -> bool:
    """Tell whether ``mpirun`` is IBM Spectrum MPI's.

    Args:
        env: the environment to look in; by default that of this process.

    Returns:
        Whether it is.

    Example:
        >>> from horovod.runner.mpi_run import is_spectrum_mpi
        >>> is_spectrum_mpi({"PATH": "/nowhere"})
        False
    """
    return _kind(env) == "SpectrumMPI"


def is_mpich(env: Optional[Mapping[str, str]] = None) -> bool:
    """Tell whether ``mpirun`` is MPICH's.

    Args:
        env: the environment to look in; by default that of this process.

    Returns:
        Whether it is.

    Example:
        >>> from horovod.runner.mpi_run import is_mpich
        >>> is_mpich({"PATH": "/nowhere"})
        False
    """
    return _kind(env) == "MPICH"


def is_intel_mpi(env: Optional[Mapping[str, str]] = None) -> bool:
    """Tell whether ``mpirun`` is Intel MPI's.

    Args:
        env: the environment to look in; by default that of this process.

    Returns:
        Whether it is.

    Example:
        >>> from horovod.runner.mpi_run import is_intel_mpi
        >>> is_intel_mpi({"PATH": "/nowhere"})
        False
    """
    return _kind(env) == "IntelMPI"


def mpi_run(
    settings: Any,
    nics: Optional[Sequence[str]],
    env: Mapping[str, str],
    command: Union[str, Sequence[str]],
    stdout: Any = None,
    stderr: Any = None,
) -> None:
    """Run a command in several processes by ``mpirun``, to its end.

    Args:
        settings: of :mod:`horovod.runner.common.util.settings`.
        nics: the network interfaces that the job may use. None: all.
        env: the processes' environment.
        command: words, or a line for the shell.
        stdout, stderr: where output goes, as :mod:`subprocess` takes it.

    Raises:
        RuntimeError: the command failed, or could not be started.

    Example:
        >>> from horovod.runner.common.util.settings import Settings
        >>> from horovod.runner.mpi_run import mpi_run
        >>> mpi_run(Settings(num_proc=2), None, dict(os.environ), ["hostname"])  # doctest: +SKIP
    """
    from horovod import _program

    words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    done = subprocess.run(
        ["horovodrun", "--mpi", *_options(settings, nics), "--", *words],
        executable=str(_program.path()),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )
    if done.returncode != 0:
        raise RuntimeError(f"mpirun failed with exit code {done.returncode}")


def _options(settings: Any, nics: Optional[Sequence[str]]) -> list[str]:
    options = [f"--num-proc={settings.num_proc}"]
    for name, value in (
        ("hosts", settings.hosts),
        ("ssh-port", settings.ssh_port),
        ("ssh-identity-file", settings.ssh_identity_file),
        ("output-filename", settings.output_filename),
        ("mpi-args", settings.extra_mpi_args),
        ("binding-args", settings.binding_args),
        ("network-interfaces", ",".join(sorted(nics)) if nics else None),
    ):
        if value:
            options.append(f"--{name}={value}")
    for name, on in (
        ("tcp", settings.tcp_flag),
        ("verbose", settings.verbose),
        ("prefix-output-with-timestamp", settings.prefix_output_with_timestamp),
    ):
        if on:
            options.append(f"--{name}")
    return options
