"""How the end of a Work is noticed if nobody waits for it, because a program has only its future.

PyTorch waits for a future in C++, where it cannot drive the engine. So

- in a backward pass, as under DistributedDataParallel, the thread of the pass waits for the Work at the end of the
  pass, just before PyTorch waits for the future: no other thread has to wake for it;
- all else is seen by the watcher, a thread. It looks after the former too, now and then: what a communication hook
  waits for during the pass must end, too.

No thread of the engine's enters Python.
"""

from __future__ import annotations

import collections
import threading
from typing import Optional, Protocol

import torch

from horovod.torch.distributed import _threads


class Watched(Protocol):
    """The watched object: a :class:`horovod.torch.distributed._work.Collective`."""

    def _await(self, seconds: float) -> bool: ...

    def _ended(self) -> bool: ...

    def _conclude(self) -> None: ...

    def _outlast(self) -> None: ...


# How often, in seconds, the watcher looks for ends that it need not wait for,
_LOOK_S = 0.005
# and how many times it does so, with nothing to look for, before it sleeps.
_IDLE_LOOKS = 100

_queue_callback = torch.autograd.Variable._execution_engine.queue_callback
_graph_task = getattr(torch._C, "_current_graph_task_id", None)  # PyTorch 2.0


def see_to(work: Watched) -> None:
    """Make sure that ``work`` is concluded at its end, although nobody waits for it."""
    _watcher.add(work, awaited=_await_in_backward(work))


class _Pass(threading.local):
    ending = False  # whether this thread is in one of the callbacks below


_pass = _Pass()


def _await_in_backward(work: Watched) -> bool:
    """Make this thread's backward pass wait for ``work`` when it ends. False if there is no pass, or it is ending."""
    if _pass.ending:
        return False
    if _graph_task is not None:
        if _graph_task() == -1:
            return False
    elif torch.is_grad_enabled():  # asking is expensive; inside a pass this is False, unless the pass records a graph
        return False

    def wait() -> None:
        _pass.ending = True
        try:
            work._outlast()
        finally:
            _pass.ending = False

    try:
        _queue_callback(wait)
    except RuntimeError:  # there is no pass
        return False
    return True


class _Watcher:
    """A thread that waits for Works and concludes them. The first Work starts it.

    Concluding a Work runs callbacks, which may wait for other Works. So the concluding thread gives up the watch
    before, and resumes it afterwards unless another thread had to take over.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all fields
        self._works: collections.deque[tuple[Watched, bool]] = collections.deque()
        self._on_watch = False
        self._asleep = False
        self._closing = False

    def add(self, work: Watched, awaited: bool) -> None:
        """Watch ``work``; if it is ``awaited``, only check it now and then."""
        with self._changed:
            self._works.append((work, awaited))
            if not self._on_watch:
                self._start()
            elif self._asleep or not awaited:
                self._changed.notify()

    def close(self) -> None:
        """Let the threads end once all ended Works are concluded."""
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _start(self) -> None:
        self._on_watch = True
        _threads.start("futures", self._run)

    def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            work._conclude()
            with self._changed:
                if self._on_watch:
                    return
                self._on_watch = True

    def _next(self) -> Optional[Watched]:
        """Wait for the end of a Work, and give up the watch. None: all threads are to end."""
        looks = 0
        while True:
            with self._changed:
                for i, (work, _) in enumerate(self._works):
                    if work._ended():
                        del self._works[i]
                        self._on_watch = False
                        if self._works:
                            self._start()
                        return work
                if self._closing:
                    self._on_watch = False
                    return None
                first = next((work for work, awaited in self._works if not awaited), None)
                if first is None:
                    looks = 0 if self._works else looks + 1
                    self._asleep = looks > _IDLE_LOOKS
                    self._changed.wait(None if self._asleep else _LOOK_S)
                    self._asleep = False
            if first is not None:
                first._await(_LOOK_S)


_watcher = _Watcher()


def close() -> None:
    """End the watch once ended Works are concluded: before the interpreter ends, and after the engine."""
    _watcher.close()
