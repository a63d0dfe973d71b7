"""The settings of a job, in the form in which programs that start a job pass them on."""

from __future__ import annotations

from typing import Any, Optional


class BaseSettings:
    """The settings of every job, each an attribute.

    Args:
        num_proc: the number of processes.
        verbose: above 0, the launcher prints what it does.
        ssh_port: port of the other hosts' sshd.
        ssh_identity_file: private key for the other hosts.
        extra_mpi_args: more arguments of ``mpirun``.
        tcp_flag: accepted as in Horovod, without effect.
        binding_args: arguments of ``mpirun`` that bind processes.
        key, start_timeout, run_func_mode, elastic: kept as attributes; ``mpi_run`` does not use them.
        output_filename: directory for each process's output.
        nics: network interfaces that the job may use.
        prefix_output_with_timestamp: put the time before each line of output.
        kwargs: further attributes, without effect.

    Example:
        >>> from horovod.runner.common.util.settings import BaseSettings
        >>> BaseSettings(num_proc=2).num_proc
        2
    """

    def __init__(
        self,
        num_proc: Optional[int] = None,
        verbose: int = 0,
        ssh_port: Optional[int] = None,
        ssh_identity_file: Optional[str] = None,
        extra_mpi_args: Optional[str] = None,
        tcp_flag: Optional[bool] = None,
        binding_args: Optional[str] = None,
        key: Optional[bytes] = None,
        start_timeout: Any = None,
        output_filename: Optional[str] = None,
        run_func_mode: bool = False,
        nics: Any = None,
        elastic: bool = False,
        prefix_output_with_timestamp: bool = False,
        **kwargs: Any,
    ) -> None:
        self.num_proc = num_proc
        self.verbose = verbose
        self.ssh_port = ssh_port
        self.ssh_identity_file = ssh_identity_file
        self.extra_mpi_args = extra_mpi_args
        self.tcp_flag = tcp_flag
        self.binding_args = binding_args
        self.key = key
        self.start_timeout = start_timeout
        self.output_filename = output_filename
        self.run_func_mode = run_func_mode
        self.nics = nics
        self.elastic = elastic
        self.prefix_output_with_timestamp = prefix_output_with_timestamp
        self.__dict__.update(kwargs)


class Settings(BaseSettings):
    """The settings of a job that is not elastic.

    Args:
        hosts: where to run, such as ``"a:2,b:2"``.
        kwargs: those of :class:`BaseSettings`.

    Example:
        >>> from horovod.runner.common.util.settings import Settings
        >>> Settings(hosts="localhost:2", num_proc=2).hosts
        'localhost:2'
    """

    def __init__(self, hosts: Optional[str] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hosts = hosts
