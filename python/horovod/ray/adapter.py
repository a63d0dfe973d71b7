"""What stands behind a RayExecutor: a job whose size is fixed, or an elastic one."""

from __future__ import annotations

import abc
from typing import Any, Callable, Mapping, Optional, Sequence

Callbacks = Optional[Sequence[Callable[[Any], Any]]]


class Adapter(abc.ABC):
    """The work of a RayExecutor. Its methods are those of RayExecutor, which says what they do."""

    @abc.abstractmethod
    def start(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, Any]] = None,
    ) -> None: ...

    @abc.abstractmethod
    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks = None) -> list[Any]: ...

    @abc.abstractmethod
    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Callbacks = None,
    ) -> list[Any]: ...

    @abc.abstractmethod
    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[Any]: ...

    @abc.abstractmethod
    def execute_single(self, fn: Callable[[Any], Any]) -> Any: ...

    @abc.abstractmethod
    def shutdown(self) -> None: ...
