"""The end of a job whose executor was dropped without ``shutdown()``."""

from __future__ import annotations

import _thread
import weakref
from typing import Any

import ray

from horovod.ray import _waiting
from horovod.ray.strategy import BaseStrategy


def end_with(owner: Any, strategy: BaseStrategy) -> weakref.finalize[..., Any]:
    """When ``owner`` is dropped, end the workers of ``strategy``, once they have finished their calls.

    Detach the returned finalizer if the workers are ended otherwise.
    """
    job = ray.get_runtime_context().get_job_id()
    end = weakref.finalize(owner, _thread.start_new_thread, _end, (strategy, job))
    end.atexit = False  # then Ray ends the workers
    return end


def _end(strategy: BaseStrategy, job: str) -> None:
    # In its own thread: Python may drop the owner at any point, even while it holds locks of Ray or threading.
    try:
        if not ray.is_initialized() or ray.get_runtime_context().get_job_id() != job:
            return  # Ray has ended the workers with their connection
        idle = [worker.idle.remote() for worker in strategy.workers]
        ray.wait(idle, num_returns=len(idle))
        _waiting.let_go(idle)
        strategy.shutdown()
    except Exception:  # the connection has ended meanwhile
        pass
