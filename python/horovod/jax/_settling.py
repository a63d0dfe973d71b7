"""The end of a job waits for compiled programs that still run.

JAX runs a compiled program after the call that started it has returned. A rank whose script ends there would leave the
job with collectives under way, and every other rank would fail.
"""

import time

import jax

from horovod.common import basics

_LIMIT = 60.0  # seconds; a program that waits for a rank that has gone another way never ends
_PAUSE = 1e-3  # seconds between two looks: Python starts no thread, which could wait, while it exits


def settle() -> None:
    """Wait for at most 60 seconds until no array waits for its program. Errors stay with their arrays."""
    deadline = time.monotonic() + _LIMIT
    for array in jax.live_arrays():
        while not array.is_ready() and time.monotonic() < deadline:
            time.sleep(_PAUSE)


basics.before_shutdown.append(settle)
