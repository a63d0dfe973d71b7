"""A progress bar at the driver for rank 0's process, if the driver has a terminal."""

from __future__ import annotations

import re
import shutil
import sys
import time

_WORD = "horovod.spark.progress"
_LINE = re.compile(rf".*{_WORD} (\d+) (\d+) (\d+) (\d+)\s*$")
_BETWEEN_S = 0.3


def possible() -> bool:
    """Whether somebody would see a bar: stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


class Teller:
    """Reports the training's progress to the driver, at most three times a second.

    Args:
        wanted: whether the driver draws a bar, and this process is to report.
        epochs: how many there are.
        steps: batches of an epoch.
    """

    def __init__(self, wanted: bool, epochs: int, steps: int) -> None:
        self._wanted = wanted
        self._epochs = epochs
        self._steps = steps
        self._next = 0.0

    def step(self, epoch: int, step: int) -> None:
        """A batch is done; both numbers start at 0."""
        if self._wanted and (step + 1 == self._steps or time.monotonic() >= self._next):
            self._next = time.monotonic() + _BETWEEN_S
            print(_WORD, epoch + 1, self._epochs, step + 1, self._steps, flush=True)


class Bar:
    """A file for the ranks' output: it draws the reports of :class:`Teller`, and writes the rest to ``sys.stdout``."""

    def __init__(self) -> None:
        self._drawn = False

    def write(self, text: str) -> int:
        """Write whole lines."""
        for line in text.splitlines(keepends=True):
            found = _LINE.match(line)
            if found:
                self._draw(*map(int, found.groups()))
            else:
                self.clear()
                sys.stdout.write(line)
        return len(text)

    def flush(self) -> None:
        """Flush what is written."""
        sys.stdout.flush()

    def clear(self) -> None:
        """Remove the bar from the terminal."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def _draw(self, epoch: int, epochs: int, step: int, steps: int) -> None:
        sys.stderr.write("\r\x1b[K" + bar(epoch, epochs, step, steps, shutil.get_terminal_size().columns))
        sys.stderr.flush()
        self._drawn = True


def bar(epoch: int, epochs: int, step: int, steps: int, columns: int) -> str:
    """One line of at most ``columns`` characters.

    >>> bar(2, 3, 5, 10, 40)
    'epoch 2/3 [#######       ] batch 5/10'
    """
    before, after = f"epoch {epoch}/{epochs} [", f"] batch {step}/{steps}"
    width = min(40, columns - 3 - len(before) - len(after))
    if width < 5:
        return (before[:-1] + after[2:])[: max(0, columns - 1)]
    full = width * min(step, steps) // max(steps, 1)
    return before + "#" * full + " " * (width - full) + after
