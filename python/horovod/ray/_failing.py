"""A worker's reaction to an exception of a user's function: it tells the other ranks, and leaves the job.

A rank whose function has returned leaves the job before its next call. Otherwise it would go on in a job that has
failed, while the others wait for it in a new one: ``hvd.init()`` does nothing in a process that is in a job.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Iterator


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Run user's code. If it raises while this process is a rank, the other ranks stop waiting for this one."""
    try:
        yield
    except BaseException as error:
        # The process lives on, for further functions, so nothing else would end the other ranks' waits.
        if "horovod.common._job" in sys.modules:
            _leave(error)
        raise


def leave(only_failed: bool = False) -> None:
    """Leave this process's job, if there is one; with ``only_failed``, only if it is known to have failed."""
    if "horovod.common._job" not in sys.modules:
        return
    from horovod.common import _job, _last_words

    if _job.is_initialized() and (not only_failed or _last_words.failure()):
        _job.shutdown()


def _leave(error: BaseException) -> None:
    from horovod.common import _job, _last_words

    if _job.is_initialized():
        _last_words.tell(error)
        _job.shutdown()
