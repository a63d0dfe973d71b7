"""What a worker does about an exception that a user's function raises: it tells the other ranks, and leaves the job."""

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


def _leave(error: BaseException) -> None:
    from horovod.common import _job, _last_words

    if _job.is_initialized():
        _last_words.tell(error)
        _job.shutdown()
