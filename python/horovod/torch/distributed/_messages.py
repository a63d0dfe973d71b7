"""Messages between two ranks: each goes through a line, in which they keep their order."""

from __future__ import annotations

import collections
import datetime
import re
import threading
from typing import Any, Callable, Hashable, Optional, Sequence

import torch

from horovod.torch.distributed import _threads
from horovod.torch.distributed._work import Work, hold

_ENGINES_WORDS = re.compile(r"^(send with tag \d+ to|receive with tag \d+ from) (rank \d+|any rank): ")

_lines: dict[Hashable, collections.deque[Message]] = {}
_mutex = threading.Lock()


class Message(Work):
    """A message that is sent or received by ``transfer``, in the background, after those of the same ``line``.

    ``transfer`` returns the sender's rank in the group, and may raise.
    """

    def __init__(
        self,
        name: str,
        outputs: Sequence[torch.Tensor],
        timeout: datetime.timedelta,
        line: Hashable,
        transfer: Callable[[], Optional[int]],
    ) -> None:
        super().__init__(name, outputs, timeout)
        self._transfer: Optional[Callable[[], Optional[int]]] = transfer
        self._ended = threading.Event()
        self._refused: Optional[Exception] = None
        self._source: Optional[int] = None
        hold(self)
        with _mutex:
            queue = _lines.get(line)
            if queue is not None:
                queue.append(self)
                return
            queue = _lines[line] = collections.deque([self])
        _threads.start(name, _run, line, queue)

    def _do(self) -> None:
        assert self._transfer is not None, "a transfer runs once"
        try:
            self._source = self._transfer()
        except Exception as e:
            # Of rank and tag the engine knows those of the world.
            self._refused = type(e)(f"{self._what}: {_ENGINES_WORDS.sub('', str(e))}")
        self._transfer = None  # and the memory with it
        self._ended.set()
        self._conclude()

    def _await(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def _outcome(self) -> None:
        if self._refused is not None:
            raise self._refused

    def _see_to(self) -> None:
        """The line's thread concludes it."""

    def source_rank(self) -> int:
        """The sender's rank in the group, of a message that was received from any; waits for it."""
        self.wait()
        if self._source is None:
            raise ValueError("only a message that was received has a source")
        return self._source

    _source_rank = source_rank


def _run(line: Any, queue: collections.deque[Message]) -> None:
    """The thread of a line, which ends when nothing is left in it."""
    while True:
        queue[0]._do()
        with _mutex:
            queue.popleft()
            if not queue:
                del _lines[line]
                return
