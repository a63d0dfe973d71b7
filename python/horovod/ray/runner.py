"""RayExecutor: the ranks of a job as actors of Ray."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.ray import _given, _settings
from horovod.ray._coordinator import Coordinator
from horovod.ray._settings import ElasticSettings, MiniSettings
from horovod.ray._static import StaticAdapter
from horovod.ray.adapter import Adapter, Callbacks
from horovod.ray.elastic_v2 import ElasticAdapter
from horovod.ray.strategy import BaseStrategy, ColocatedStrategy, PGStrategy

__all__ = ["Coordinator", "MiniSettings", "RayExecutor"]


class _BothGiven(ValueError, AssertionError):
    """Two parameters exclude each other; Horovod raises an AssertionError here."""


class RayExecutor:
    """A job whose ranks are actors of Ray.

    Give ``num_workers``, or ``num_hosts`` with ``num_workers_per_host``, for a job of a fixed size; give
    ``min_workers`` for an elastic job. Workers take part as soon as they call ``hvd.init()``.

    Args:
        settings: from :meth:`create_settings`, or Horovod's own: ``horovod.runner.common.util.settings.Settings``, for
            an elastic job ``horovod.runner.elastic.settings.ElasticSettings``. None: the defaults. If no other
            argument gives a number of workers, ``num_proc`` counts, or for an elastic job ``min_num_proc``.
        num_workers: the number of ranks, packed onto few hosts.
        num_hosts: the number of hosts, each with ``num_workers_per_host`` ranks.
        num_workers_per_host: ranks on each host.
        cpus_per_worker: how many of Ray's CPUs each rank takes.
        use_gpu: give each rank GPUs.
        gpus_per_worker: how many GPUs, 1 by default.
        use_current_placement_group: run in the placement group that this process runs in, if there is one.
        min_workers: the fewest ranks with which an elastic job can go on.
        max_workers: the most ranks of an elastic job.
        reset_limit: how often an elastic job may be formed anew.
        cooldown_range: for how many seconds a failed host stays unused: the least and the most.
        elastic_timeout: seconds until an elastic job must have its ranks again.
        override_discovery: look for the hosts of an elastic job in Ray.
        unknown: no other parameters are accepted.

    Raises:
        TypeError: a parameter does not exist.
        ValueError: arguments exclude one another, or make no sense.

    Example:
        >>> executor = RayExecutor(num_workers=4)
        >>> executor.start()
        >>> losses = executor.run(train, args=[config])
        >>> executor.shutdown()
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        ssh_str: Optional[str] = None,
        placement_group_timeout_s: float = 100,
        nics: Optional[Sequence[str]] = None,
        **unknown: Any,
    ) -> MiniSettings:
        """Make the settings of a job.

        Args:
            timeout_s: seconds until all ranks must have met in ``hvd.init()``, counted from the first.
            ssh_identity_file: the path of a file for ``ssh_str``.
            ssh_str: written to ``ssh_identity_file`` if that file does not exist. Nothing is started by ssh.
            placement_group_timeout_s: seconds until the cluster must have room for all workers.
            nics: names of the network interfaces that the ranks may use; all by default.
            unknown: no other parameters are accepted.

        Returns:
            The settings.

        Raises:
            TypeError: for other parameters.
        """
        _settings.refuse_unknown("RayExecutor.create_settings", unknown, {"verbose": "set settings.verbose"})
        _settings.write_identity(ssh_identity_file, ssh_str)
        return MiniSettings(
            nics=nics,
            ssh_identity_file=ssh_identity_file,
            timeout_s=timeout_s,
            placement_group_timeout_s=placement_group_timeout_s,
        )

    def __init__(
        self,
        settings: Any = None,
        num_workers: Optional[int] = None,
        num_hosts: Optional[int] = None,
        num_workers_per_host: Optional[int] = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: Optional[int] = None,
        use_current_placement_group: bool = True,
        min_workers: Optional[int] = None,
        max_workers: Optional[int] = None,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[Sequence[int]] = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
        **unknown: Any,
    ) -> None:
        _settings.refuse_unknown(
            "RayExecutor",
            unknown,
            {"cpus_per_slot": "it is cpus_per_worker", "gpus_per_slot": "it is gpus_per_worker"},
        )
        self.settings = _given.settings(settings)
        _given.amount("cpus_per_worker", cpus_per_worker)
        gpus = _gpus(use_gpu, gpus_per_worker)
        elastic = isinstance(self.settings, ElasticSettings)
        if num_workers is None and num_hosts is None and min_workers is None:
            if isinstance(self.settings, ElasticSettings):
                min_workers = self.settings.min_num_proc
            else:
                num_workers = self.settings.num_proc
        if max_workers is not None and (min_workers is None or min_workers <= 0):
            raise ValueError("max_workers needs min_workers, above 0: together they make the job elastic")
        if min_workers is not None:
            if num_workers is not None or num_hosts is not None:
                raise ValueError(
                    "give min_workers for an elastic job, or num_workers or num_hosts for one of a fixed size"
                )
            self.settings.elastic = True
            given = {
                "min_workers": _given.positive("min_workers", min_workers),
                "max_workers": None if max_workers is None else _given.positive("max_workers", max_workers),
                "reset_limit": reset_limit,
                "cooldown_range": cooldown_range,
                "elastic_timeout": None if elastic_timeout == ElasticSettings.elastic_timeout else elastic_timeout,
            }
            self.adapter: Adapter = ElasticAdapter(
                self.settings,
                use_gpu=use_gpu,
                cpus_per_worker=cpus_per_worker,
                gpus_per_worker=gpus,
                override_discovery=override_discovery,
                **_merged(given, self.settings),
            )
            return
        if elastic:
            raise ValueError(
                "these settings are of an elastic job: give min_workers in place of num_workers or num_hosts, or "
                "make the settings by RayExecutor.create_settings()"
            )
        _refuse_elastic_arguments(reset_limit, cooldown_range, elastic_timeout, override_discovery)
        strategy = _strategy(
            self.settings,
            num_workers,
            num_hosts,
            1 if num_workers_per_host is None else _given.positive("num_workers_per_host", num_workers_per_host),
            use_current_placement_group,
            {"cpus_per_worker": cpus_per_worker, "use_gpu": use_gpu, "gpus_per_worker": gpus},
        )
        if self.settings.num_proc not in (None, strategy.num_workers):
            raise ValueError(
                f"settings.num_proc={self.settings.num_proc}, but the other arguments ask for {strategy.num_workers} "
                "workers"
            )
        self.settings.elastic = False
        self.adapter = StaticAdapter(self.settings, strategy)

    def start(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Start the workers. Blocks until all run.

        Args:
            executable_cls: called on each worker; :meth:`execute` passes the object to functions.
            executable_args: its positional arguments.
            executable_kwargs: its keyword arguments.
            extra_env_vars: variables of the workers' environment.

        Raises:
            TimeoutError: the cluster has no room for the workers.
            RuntimeError: nodes have another Python or gorovod than the driver.
        """
        self.adapter.start(executable_cls, executable_args, executable_kwargs, extra_env_vars)

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks = None) -> list[Any]:
        """Call ``fn(executable)`` on every worker. Blocks. Raises as :meth:`run` does.

        Args:
            fn: the function. It gets the object from :meth:`start`, or None.
            callbacks: as for :meth:`run`.

        Returns:
            The results, by rank.
        """
        _given.callbacks(callbacks)
        return self.adapter.execute(fn, callbacks)

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Callbacks = None,
    ) -> list[Any]:
        """Call ``fn(*args, **kwargs)`` on every worker. Blocks.

        Args:
            fn: the function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            callbacks: functions of one argument. Each is called here with every dictionary that rank 0 gives to
                ``horovod.ray.ray_logger.log``, while the workers run.

        Returns:
            The results, by rank.

        Raises:
            TypeError: ``fn``, or its result, cannot be pickled.
            RayTaskError: a worker has raised an exception; the error is also an instance of that exception's class.
            WorkerDiedError: a worker's process or node has ended.
            KeyboardInterrupt: Ctrl-C. Then, and if a callback raises, the workers end the call by KeyboardInterrupt.
        """
        _given.callbacks(callbacks)
        return self.adapter.run(fn, args, kwargs, callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[Any]:
        """Do as :meth:`run`, but return at once.

        Args:
            fn: the function.
            args: its positional arguments.
            kwargs: its keyword arguments.

        Returns:
            A list of ObjectRefs, by rank.
        """
        return self.adapter.run_remote(fn, args, kwargs)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Call ``fn(executable)`` on rank 0 only. Blocks.

        Args:
            fn: the function. It gets the object from :meth:`start`, or None.

        Returns:
            The result.
        """
        return self.adapter.execute_single(fn)

    def shutdown(self) -> None:
        """End the workers, and release their resources. :meth:`start` may follow."""
        self.adapter.shutdown()


def _gpus(use_gpu: bool, gpus_per_worker: Optional[int]) -> int:
    """GPUs per worker, checked."""
    if gpus_per_worker is None:
        return int(bool(use_gpu))
    if not use_gpu:
        raise ValueError("gpus_per_worker is set, but use_gpu is False")
    if _given.whole("gpus_per_worker", gpus_per_worker) < 1:
        raise ValueError(f"gpus_per_worker must be >= 1: Got {gpus_per_worker}.")
    return gpus_per_worker


def _merged(given: dict[str, Any], settings: MiniSettings) -> dict[str, Any]:
    """The arguments of an elastic job: the given ones, and those of the settings. ValueError if both differ."""
    told = _settings.elastic_arguments(settings)
    for name, value in given.items():
        if value is not None and told.setdefault(name, value) != value:
            raise ValueError(f"{name}={value!r}, but the settings have {told[name]!r}: give one of them")
    return told


def _refuse_elastic_arguments(
    reset_limit: Any, cooldown_range: Any, elastic_timeout: float, override_discovery: bool
) -> None:
    """Raise ValueError if a job of a fixed size has arguments of an elastic one."""
    for name, is_given in (
        ("reset_limit", reset_limit is not None),
        ("cooldown_range", cooldown_range is not None),
        ("elastic_timeout", elastic_timeout != ElasticSettings.elastic_timeout),
        ("override_discovery", not override_discovery),
    ):
        if is_given:
            raise ValueError(f"{name} is for an elastic job: give min_workers, or leave {name} out")


def _strategy(
    settings: MiniSettings,
    num_workers: Optional[int],
    num_hosts: Optional[int],
    num_workers_per_host: int,
    use_current_placement_group: bool,
    per_worker: dict[str, Any],
) -> BaseStrategy:
    if num_workers is not None and num_hosts is not None:
        raise _BothGiven("give num_workers, or num_hosts with num_workers_per_host, not both")
    if num_hosts is not None:
        return ColocatedStrategy(settings, _given.positive("num_hosts", num_hosts), num_workers_per_host, **per_worker)
    if num_workers is None:
        raise ValueError("give num_workers, or num_hosts with num_workers_per_host, or min_workers for an elastic job")
    return PGStrategy(
        settings,
        _given.positive("num_workers", num_workers),
        force_create_placement_group=not use_current_placement_group,
        **per_worker,
    )
