"""What a worker does about an exception that a user's function raises: it tells the other ranks, and leaves the job.

The ranks whose function has returned leave the job before their next call. Else they would go on in a job that has
failed, while the others wait for them in a new one: ``hvd.init()`` does nothing in a process that is in a job.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Iterator


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Run user's code. If it raises while this process is a rank, no other rank waits for it any longer."""
    try:
        yield
    except BaseException as error:
        # The process lives on, for further functions, so nothing else would end what the others wait for.
        if "horovod.common._job" in sys.modules:
            _leave(error)
        raise


def leave(only_failed: bool = False) -> None:
    """Leave the job that this process is in, if any; with ``only_failed``, if this process knows that it has failed."""
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
