"""The end of a job whose executor nobody has any more, though nobody has called ``shutdown()``."""

from __future__ import annotations

import _thread
import weakref
from typing import Any

import ray

from horovod.ray import _waiting
from horovod.ray.strategy import BaseStrategy


def end_with(owner: Any, strategy: BaseStrategy) -> weakref.finalize[..., Any]:
    """When ``owner`` is dropped, end the workers of ``strategy``, once they have done what they were given to do.

    Detach what this returns when they are ended otherwise.
    """
    job = ray.get_runtime_context().get_job_id()
    end = weakref.finalize(owner, _thread.start_new_thread, _end, (strategy, job))
    end.atexit = False  # Ray ends the workers then
    return end


def _end(strategy: BaseStrategy, job: str) -> None:
    # A thread of its own: Python may drop the owner in the middle of anything, with locks of Ray's or of threading's.
    try:
        if not ray.is_initialized() or ray.get_runtime_context().get_job_id() != job:
            return  # Ray has ended the workers with the connection that they belonged to
        idle = [worker.idle.remote() for worker in strategy.workers]
        ray.wait(idle, num_returns=len(idle))
        _waiting.let_go(idle)
        strategy.shutdown()
    except Exception:  # the connection has ended meanwhile
        pass
