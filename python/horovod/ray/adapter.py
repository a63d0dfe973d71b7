"""The implementations of a RayExecutor: a job whose size is fixed, or an elastic one."""

from __future__ import annotations

import abc
from typing import Any, Callable, Mapping, Optional, Sequence

Callbacks = Optional[Sequence[Callable[[Any], Any]]]


class Adapter(abc.ABC):
    """The work of a RayExecutor. Its methods are RayExecutor's, which documents them."""

    @abc.abstractmethod
    def start(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Start the workers, or make ready to.

        Args:
            executable_cls: called on each worker; :meth:`execute` passes the object to functions.
            executable_args: its positional arguments.
            executable_kwargs: its keyword arguments.
            extra_env_vars: variables of the workers' environment.
        """

    @abc.abstractmethod
    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks = None) -> list[Any]:
        """Call ``fn(executable)`` on every worker. Blocks.

        Args:
            fn: the function. It gets the object from :meth:`start`, or None.
            callbacks: as for :meth:`run`.

        Returns:
            The results, by rank.
        """

    @abc.abstractmethod
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
            callbacks: functions of one argument, called here with rank 0's messages.

        Returns:
            The results, by rank.
        """

    @abc.abstractmethod
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

    @abc.abstractmethod
    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Call ``fn(executable)`` on rank 0 only. Blocks.

        Args:
            fn: the function.

        Returns:
            The result.
        """

    @abc.abstractmethod
    def shutdown(self) -> None:
        """End the workers, and release their resources."""
