"""Messages between two ranks. Each goes through a line, which keeps its messages in order."""

from __future__ import annotations

import collections
import datetime
import re
import threading
from typing import Any, Callable, Hashable, Optional, Sequence, Union

import torch

from horovod.common import _lib
from horovod.torch.distributed import _callbacks, _memory, _threads
from horovod.torch.distributed._base import Base, Tensors, one
from horovod.torch.distributed._work import Work, hold

_TORCH_TAGS = 1 << 31  # the engine's tags that belong to torch.distributed
_USER_TAG_BITS = 20

_ENGINES_WORDS = re.compile(r"^(send with tag \d+ to|receive with tag \d+ from) (rank \d+|any rank): ")

_lines: dict[Hashable, collections.deque[Message]] = {}
_mutex = threading.Lock()


class Message(Work):
    """A message that ``transfer`` sends or receives in the background, after earlier messages of the same ``line``.

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
        super().__init__(name, outputs, timeout, _callbacks.MessageOrigin(name))
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
            # The engine's text names the world's rank and tag, so it is removed.
            self._refused = type(e)(f"{self._what}: {_ENGINES_WORDS.sub('', str(e))}")
        self._transfer = None  # this frees the memory, too
        self._ended.set()
        self._conclude()

    def _await(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def _outcome(self) -> None:
        if self._refused is not None:
            raise self._refused

    def _see_to(self) -> None:
        """The line's thread concludes the message."""

    def source_rank(self) -> int:
        """The sender's rank in the group, of a message from any rank; waits for the message."""
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


class Messages(Base):
    """The part of a group that sends tensors from rank to rank."""

    def _tag(self, tag: int) -> int:
        if not 0 <= tag < 1 << _USER_TAG_BITS:
            raise ValueError(f"tag {tag} is out of range: it must be from 0 to {(1 << _USER_TAG_BITS) - 1}")
        return _TORCH_TAGS | (1 + self._number % 2047) << _USER_TAG_BITS | tag

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.size():
            raise ValueError(f"rank {rank} is none of the group's {self.size()}")
        return self._ranks[rank]

    def send(self, tensors: Union[torch.Tensor, Tensors], dst: int, tag: int = 0) -> Work:
        """Send a tensor to a rank. Ends when the tensor may be changed, which can be before it is received.

        Messages with one tag, from 0 to 2**20 - 1, arrive in order.
        """
        tensor, to, number = one(tensors, "send"), self._peer(dst), self._tag(tag)
        host = _memory.readable(tensor, by_host=True)

        def transfer() -> None:
            _lib.send(to, number, _memory.dtype_label(host.dtype), host.data_ptr(), _memory.size(host))

        return Message(f"send to rank {dst} with tag {tag}", [tensor], self._timeout, ("to", to), transfer)

    def recv(self, tensors: Union[torch.Tensor, Tensors], src: int, tag: int = 0) -> Work:
        """Receive a tensor from a rank, which must have sent as many elements of the same dtype."""
        self._peer(src)
        return self._recv(one(tensors, "recv"), src, tag)

    def recv_anysource(self, tensors: Union[torch.Tensor, Tensors], tag: int = 0) -> Work:
        """Receive a tensor from any rank. The Work's ``source_rank()`` is the sender."""
        return self._recv(one(tensors, "recv_anysource"), None, tag)

    def _recv(self, tensor: torch.Tensor, src: Optional[int], tag: int) -> Work:
        source, number = tuple(self._ranks) if src is None else self._ranks[src], self._tag(tag)
        host = _memory.writable(tensor, by_host=True)
        _memory.check_written([tensor], "recv")

        def transfer() -> int:
            mine = (_memory.size(host), _memory.dtype_label(host.dtype))
            sender, *sent = _lib.recv(source, number, host.data_ptr(), mine[0])
            rank = self._ranks.index(sender)
            if (sent[0], sent[1]) != mine:
                raise ValueError(
                    f"the tensor that rank {rank} has sent has {_memory.described(*sent)}, "
                    f"that to receive it {_memory.described(*mine)}"
                )
            _memory.store(host, tensor)
            return rank

        name = f"receive from {'any rank' if src is None else f'rank {src}'} with tag {tag}"
        return Message(name, [tensor], self._timeout, ("from", source, number), transfer)
