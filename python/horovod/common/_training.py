"""The loop around a training function, for the front ends: it converts their errors, and joins the job anew."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, Optional

from horovod.common import _job
from horovod.common.elastic import run_fn
from horovod.common.exceptions import HorovodInternalError

# The HorovodInternalError for an exception of a framework; None if it is not the error of a collective.
InternalError = Callable[[BaseException], Optional[HorovodInternalError]]


@contextlib.contextmanager
def converting(internal_error: InternalError) -> Iterator[None]:
    """Raise HorovodInternalError in place of a framework's exceptions that stand for it."""
    try:
        yield
    except Exception as e:
        error = internal_error(e)
        if error is None:
            raise
        raise error from e


def run(func: Callable[..., Any], internal_error: InternalError = lambda _: None) -> Callable[..., Any]:
    """Wrap ``func`` into the loop of :func:`run_fn`, whose reset leaves this process's job and joins it anew."""

    @functools.wraps(func)
    def converted(*args: Any, **kwargs: Any) -> Any:
        with converting(internal_error):
            return func(*args, **kwargs)

    def reset() -> None:
        _job.shutdown()
        _job.init()

    return run_fn(converted, reset)
