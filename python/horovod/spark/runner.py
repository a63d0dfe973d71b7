"""``horovod.spark.run``: a function in the tasks of a barrier stage."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from horovod.spark import _session, _static


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
    verbose: int = 1,
) -> list[Any]:
    """Call ``fn(*args, **kwargs)`` in ``num_proc`` processes, each in a task of Spark. Blocks.

    Args:
        fn: the function. It calls ``hvd.init()``.
        args: its positional arguments.
        kwargs: its keyword arguments.
        num_proc: how many processes; as many as Spark's default parallelism without it.
        env: variables of the processes' environment, beside those that the executors have.
        verbose: above 1 tells more.

    Returns:
        The results by rank.

    Example:
        >>> import horovod.spark
        >>> def rank():
        ...     import horovod.torch as hvd
        ...     hvd.init()
        ...     return hvd.rank()
        >>> horovod.spark.run(rank, num_proc=2)
        [0, 1]
    """
    session = _session.active()
    size = _session.default_parallelism(session) if num_proc is None else num_proc
    return _static.run(session, fn, tuple(args), dict(kwargs or {}), size, dict(env or {}))
