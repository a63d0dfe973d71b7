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
    """Call ``func(*args, **kwargs)`` in each of ``num_proc`` processes, and return the results. Blocks.

    The processes are started as by ``horovodrun``. The function, its arguments and its results travel by cloudpickle.
    An interrupt ends all processes.

    Args:
        func: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        num_proc: the number of processes; in an elastic job, at the start.
        min_num_proc: the fewest processes with which an elastic job can go on.
        max_num_proc: the most processes of an elastic job.
        slots: for a host of the discovery script that names no number.
        reset_limit: how often an elastic job may be formed anew.
        cooldown_range: for how many seconds a failed host stays unused: the least and the most.
        hosts: such as ``"a:2,b:2"``; by default this host.
        hostfile: the path of a file with the hosts.
        host_discovery_script: prints the existing hosts; makes the job elastic.
        start_timeout: seconds until all processes must have started.
        ssh_port: the port of the other hosts' sshd.
        ssh_identity_file: the key for the other hosts.
        disable_cache: accepted as in Horovod, without effect.
        output_filename: a folder for the processes' output.
        verbose: above 0 prints more.
        use_gloo: start the processes without MPI, which is the default anyway.
        use_mpi: let mpirun start the processes.
        mpi_args: further arguments for mpirun.
        network_interface: deprecated; names separated by commas, which win over ``network_interfaces``.
        network_interfaces: the interfaces to use.
        executable: the Python that runs the processes, this one's by default.
        np: old name of ``num_proc``, which wins.
        min_np: old name of ``min_num_proc``, which wins.
        max_np: old name of ``max_num_proc``, which wins.

    Returns:
        The results by rank. For an elastic job, those of the first ``min_num_proc`` ranks that have returned a result.

    Raises:
        RuntimeError: the job cannot be started or a process fails; with the messages of the launcher and the process.
        TypeError: ``func`` cannot be called. Then nothing is started.
        ValueError: arguments make no sense, such as more processes than slots.

    Example:
        >>> import horovod
        >>> def power(base):
        ...     import horovod.torch as hvd
        ...     hvd.init()
        ...     return base ** hvd.rank()
        >>> horovod.run(power, args=(10,), num_proc=2)
        [1, 10]
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
