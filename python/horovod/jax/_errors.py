"""Finds out which errors of JAX are errors of collectives. JAX raises its own classes for any failure."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

import jax

from horovod.common import _training
from horovod.common.exceptions import HorovodInternalError

# A small program, which JAX runs at once, fails with a ValueError.
_FAILURES = (jax.errors.JaxRuntimeError, ValueError)


def internal_error(error: BaseException) -> Optional[HorovodInternalError]:
    """Tell whether an exception is the error of a collective in a compiled program.

    JAX raises it as a JaxRuntimeError; if a small program fails at once, as a ValueError.

    Args:
        error: the exception.

    Returns:
        The HorovodInternalError that it stands for; None if it is another error.

    Example:
        >>> hvd.elastic.internal_error(KeyError("x")) is None
        True
    """
    if isinstance(error, _FAILURES) and "HorovodInternalError: " in str(error):
        return HorovodInternalError(str(error))
    return None


@contextlib.contextmanager
def internal_errors() -> Iterator[None]:
    """Raise HorovodInternalError if a collective fails in a compiled program; other errors propagate.

    A program may fail after its call has returned: then the error is raised when a result is used.

    Returns:
        A context manager.

    Example:
        >>> import jax
        >>> step = jax.jit(hvd.allreduce)
        >>> try:
        ...     with hvd.internal_errors():
        ...         weights = jax.block_until_ready(step(jnp.ones(2)))
        ... except hvd.HorovodInternalError as e:
        ...     print("a rank is gone:", e)
    """
    with _training.converting(internal_error):
        yield
