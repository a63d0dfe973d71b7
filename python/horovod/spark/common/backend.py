"""Backends: they run an estimator's training function in parallel processes."""

from __future__ import annotations

import abc
from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.spark import _session, runner

__all__ = ["Backend", "SparkBackend", "default_num_proc"]


class Backend(abc.ABC):
    """Runs a function in the processes of a job. To start processes in another way, derive a class from it.

    Example:
        >>> class Here(Backend):
        ...     def run(self, fn, args=(), kwargs=None, env=None):
        ...         return [fn(*args, **(kwargs or {}))]
        ...     def num_processes(self):
        ...         return 1
        >>> Here().run(max, args=(1, 2))
        [2]
    """

    @abc.abstractmethod
    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        """Call ``fn(*args, **kwargs)`` in every process.

        Args:
            fn: the function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            env: variables of the processes' environment.

        Returns:
            The results by rank.
        """

    @abc.abstractmethod
    def num_processes(self) -> int:
        """How many processes there are.

        Returns:
            The number.
        """


class SparkBackend(Backend):
    """Runs a function in tasks of Spark, by :func:`horovod.spark.run`.

    Args:
        num_proc: how many processes; None: as many as Spark's default parallelism.
        env: variables of the processes' environment, in addition to those of the executors; this process's variables
            are not passed on. ``CUDA_VISIBLE_DEVICES`` is left out, because each executor has GPUs of its own.
        kwargs: further arguments of :func:`horovod.spark.run`.

    Example:
        >>> backend = SparkBackend(num_proc=2, verbose=0)
        >>> backend.num_processes()
        2
    """

    def __init__(self, num_proc: Optional[int] = None, env: Optional[Mapping[str, str]] = None, **kwargs: Any) -> None:
        variables = dict(env or {})
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        self._env = variables
        self._num_proc = default_num_proc() if num_proc is None else num_proc
        self._kwargs = kwargs

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        """Call ``fn(*args, **kwargs)`` in every process. See :func:`horovod.spark.run`, which says what it raises.

        Args:
            fn: the function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            env: variables of the processes' environment, in addition to those of this object.

        Returns:
            The results by rank.
        """
        variables = {**self._env, **(env or {})}
        return runner.run(
            fn, args=tuple(args), kwargs=dict(kwargs or {}), num_proc=self._num_proc, env=variables, **self._kwargs
        )

    def num_processes(self) -> int:
        """How many processes there are.

        Returns:
            The number.
        """
        return self._num_proc


def default_num_proc() -> int:
    """Spark's default parallelism: the number of processes of a job that names none.

    Returns:
        The number.

    Raises:
        RuntimeError: there is no session of Spark.

    Example:
        >>> default_num_proc()  # of a session with the master local[4]
        4
    """
    return _session.default_parallelism(_session.active())
