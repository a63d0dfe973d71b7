"""The ranks' output at the driver: whole lines, each with its rank."""

from __future__ import annotations

import collections
import io
import sys
import threading
import time
from typing import Any, Optional

from horovod.spark._saying import say

_LINES = 10  # of stderr, for an error
_MOST_COLUMNS = 300
_MOST_KEPT = 1 << 20  # bytes of a rank's output that are kept


class Output:
    """Prints the lines of all ranks, such as ``[1]<stdout>:loss 0.3``.

    Args:
        stdout: a file for text, in place of ``sys.stdout``.
        stderr: likewise.
        timestamps: begin each line with the time.
    """

    def __init__(self, stdout: Optional[Any] = None, stderr: Optional[Any] = None, timestamps: bool = False) -> None:
        self._files = {"stdout": stdout, "stderr": stderr}
        for name, file in self._files.items():
            binary = isinstance(file, (io.RawIOBase, io.BufferedIOBase))
            if file is not None and (binary or not hasattr(file, "write")):
                raise TypeError(f"{name}={file!r}: an open file for text is needed")
        self._timestamps = timestamps
        self._begun: dict[tuple[str, str], bytes] = {}
        self._last: dict[str, collections.deque[str]] = {}
        self._failing: set[str] = set()  # streams whose file raises errors
        self._lock = threading.Lock()

    def write(self, who: str, stream: str, data: bytes) -> None:
        """Print the whole lines of a rank's output."""
        with self._lock:
            *lines, rest = (self._begun.get((who, stream), b"") + data).split(b"\n")
            self._begun[who, stream] = rest
            self._print(who, stream, lines)

    def finish(self) -> None:
        """Print unfinished lines."""
        with self._lock:
            for (who, stream), rest in self._begun.items():
                self._print(who, stream, [rest] if rest else [])
            self._begun.clear()

    def last_of(self, who: str) -> str:
        """The last lines of a rank's stderr."""
        with self._lock:
            rest = self._begun.get((who, "stderr"), b"")
            lines = [*self._last.get(who, ()), *([rest.decode("utf-8", "replace")] if rest else [])]
        return "\n".join(line[:_MOST_COLUMNS] for line in lines[-_LINES:])

    def _print(self, who: str, stream: str, lines: list[bytes]) -> None:
        if not lines:
            return
        now = time.strftime("%a %b %d %H:%M:%S %Y", time.localtime()) if self._timestamps else ""
        texts = [line.decode("utf-8", "replace") for line in lines]
        if stream == "stderr":
            self._last.setdefault(who, collections.deque(maxlen=_LINES)).extend(text for text in texts if text.strip())
        file = self._files[stream] or getattr(sys, stream)
        if file is not None:
            try:
                file.write("".join(f"{now}[{who}]<{stream}>:{text}\n" for text in texts))
                file.flush()
            except Exception as error:  # the file is the user's, such as a notebook's; its errors end no job
                self._lost(stream, error)

    def _lost(self, stream: str, error: Exception) -> None:
        if stream not in self._failing:
            self._failing.add(stream)
            say(f"what the processes write to {stream} is lost: {type(error).__name__}: {error}")


class Kept(Output):
    """Keeps the last part of each rank's output, if it cannot be printed yet."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, collections.deque[tuple[str, bytes]]] = {}
        self._sizes: dict[str, int] = {}

    def write(self, who: str, stream: str, data: bytes) -> None:
        """Keep it, and drop the oldest part beyond the limit."""
        with self._lock:
            kept = self._kept.setdefault(who, collections.deque())
            kept.append((stream, data))
            self._sizes[who] = self._sizes.get(who, 0) + len(data)
            while self._sizes[who] > _MOST_KEPT and len(kept) > 1:
                self._sizes[who] -= len(kept.popleft()[1])

    def finish(self) -> None:
        """Do nothing: :meth:`pieces` has all."""

    def pieces(self) -> list[tuple[str, str, bytes]]:
        """The kept output, by rank: rank, stream and text."""
        with self._lock:
            ranks = sorted(self._kept, key=lambda who: (len(who), who))
            return [(who, stream, data) for who in ranks for stream, data in self._kept[who]]
