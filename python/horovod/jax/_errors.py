"""Which errors of JAX are those of collectives: JAX raises its own classes, whatever has failed in a program."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional

import jax

from horovod.common.exceptions import HorovodInternalError

# A small program, which JAX runs at once, fails with a ValueError.
_FAILURES = (jax.errors.JaxRuntimeError, ValueError)


def internal_error(error: BaseException) -> Optional[HorovodInternalError]:
    """The error of a collective in a compiled program, or None where it is another one.

    JAX raises it as a JaxRuntimeError, and as a ValueError where a small program fails at once.
    """
    if isinstance(error, _FAILURES) and "HorovodInternalError: " in str(error):
        return HorovodInternalError(str(error))
    return None


@contextlib.contextmanager
def internal_errors() -> Iterator[None]:
    """Raise HorovodInternalError where a collective fails in a compiled program; other errors go through.

    A program may fail after its call has returned: then the error is raised where a result is looked at.

        try:
            with hvd.internal_errors():
                weights = jax.block_until_ready(step(weights))
        except hvd.HorovodInternalError as e:
            ...
    """
    try:
        yield
    except _FAILURES as e:
        error = internal_error(e)
        if error is None:
            raise
        raise error from e
