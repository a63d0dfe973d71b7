"""Python side of the launcher. Jobs are started by the ``horovodrun`` program, or from Python by :func:`run`."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Optional, Sequence

__all__ = ["run"]


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[dict[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Sequence[int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[int] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Optional[Sequence[str]] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> list[Any]:
    """Call ``func(*args, **kwargs)`` in each of ``num_proc`` processes, and return what they return, by rank. Blocks.

    The processes are started as ``horovodrun`` does, whose options most arguments are: ``hosts`` is ``"a:2,b:2"``,
    ``hostfile`` a path, ``slots`` the slots of a host of the discovery script that names none. ``executable`` is the
    Python that runs them, by default this one's. ``np``, ``min_np``, ``max_np`` and ``network_interface`` (names
    separated by commas) are old names, which win. The function, its arguments and what it returns travel by
    cloudpickle. In an elastic job the first ``min_num_proc`` ranks that have returned something count.

    Raises RuntimeError if the job cannot be started or a process fails, with what the launcher and the process said;
    TypeError for a ``func`` that cannot be called, before anything is started; ValueError for arguments that make no
    sense, such as more processes than slots. An interrupt ends all processes.
    """
    from horovod.runner import _jobs

    if network_interface is not None:
        warnings.warn("network_interface is deprecated, use network_interfaces", DeprecationWarning, stacklevel=2)
        network_interfaces = network_interface.split(",")
    settings = _jobs.Settings(
        num_proc=num_proc if np is None else np,
        min_num_proc=min_num_proc if min_np is None else min_np,
        max_num_proc=max_num_proc if max_np is None else max_np,
        slots=slots,
        reset_limit=reset_limit,
        cooldown_range=cooldown_range,
        hosts=hosts,
        hostfile=hostfile,
        host_discovery_script=host_discovery_script,
        start_timeout=start_timeout,
        ssh_port=ssh_port,
        ssh_identity_file=ssh_identity_file,
        disable_cache=disable_cache,
        output_filename=output_filename,
        verbose=verbose,
        use_gloo=use_gloo,
        use_mpi=use_mpi,
        mpi_args=mpi_args,
        network_interfaces=network_interfaces,
        executable=executable,
    )
    return _jobs.call(func, tuple(args), dict(kwargs or {}), settings)
