"""``HorovodRunner``, as in Databricks' ``sparkdl``."""

from __future__ import annotations

import numbers
from typing import Any, Callable

__all__ = ["HorovodRunner"]

_LEVELS = ("log_callback_only", "all")


class HorovodRunner:
    """Runs a function as a job of Horovod.

    Args:
        np: how many processes there are: above 0, in tasks of Spark; below 0, ``-np`` of them on the driver, for
            experiments; 0, as many as Spark's default parallelism.
        driver_log_verbosity: "all" prints the processes' output. "log_callback_only" prints only the last lines, in an
            error.

    Raises:
        TypeError: ``np`` is no whole number.
        ValueError: ``driver_log_verbosity`` is something else.

    Example:
        >>> from horovod.spark.databricks import HorovodRunner
        >>> model = HorovodRunner(np=2).run(train, batch_size=64)
    """

    def __init__(self, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        if driver_log_verbosity not in _LEVELS:
            raise ValueError(f"driver_log_verbosity={driver_log_verbosity!r}: it is one of {', '.join(_LEVELS)}")
        if isinstance(np, bool) or not isinstance(np, numbers.Integral):
            raise TypeError(f"np={np!r}: a whole number is needed; below 0 for processes on the driver")
        self._np: int = int(np)
        self._prints: bool = driver_log_verbosity == "all"

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Call ``main(**kwargs)`` in every process.

        Args:
            main: the function. It calls ``hvd.init()``.
            kwargs: its arguments.

        Returns:
            Rank 0's result.

        Raises:
            RuntimeError: a process has failed; :func:`horovod.spark.run` lists further errors.
        """
        if self._np < 0:
            from horovod import runner

            return runner.run(main, kwargs=kwargs, num_proc=-self._np)[0]
        from horovod import spark

        file = None if self._prints else _Nobody()
        return spark.run(main, kwargs=kwargs, num_proc=self._np or None, stdout=file, stderr=file)[0]


class _Nobody:
    """A file without a reader."""

    def write(self, text: str) -> None:
        """Drop the text."""

    def flush(self) -> None:
        """Do nothing."""
