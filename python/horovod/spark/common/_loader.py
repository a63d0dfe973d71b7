"""The batches of an epoch for a training loop: the same number on each process, in a framework's form."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, Optional

from horovod.spark.common import _batches
from horovod.spark.common.reader import ParquetReader


class Loader:
    """Batches. Each iteration has those of one epoch.

    Args:
        reader: reads them.
        steps: how many batches an iteration has. If this process's rows make more, iterations continue one another. If
            they make fewer, rows of the same epoch come again, and a process without rows gets some of the others'.
            None means each row of this process once; then the numbers of batches of two processes may differ by one.
        convert: makes a batch from a dictionary of arrays.
        single: whether an epoch's last batch may have a single row. If not, that row joins the batch before, unless all
            batches have one row, or there is no other batch. Batch normalization cannot train with one row.
    """

    def __init__(
        self,
        reader: ParquetReader,
        steps: Optional[int] = None,
        convert: Optional[Callable[[Any], Any]] = None,
        single: bool = True,
    ) -> None:
        self.reader = reader
        self.steps = steps
        self._convert = convert
        self._joins = not single and reader.batch_size > 1
        self._epoch = 0
        self._endless: Optional[Iterator[Any]] = None

    def __len__(self) -> int:
        """How many batches an iteration has."""
        if self.steps is not None:
            return self.steps
        count = len(self.reader)
        return count - 1 if self._joins and count > 1 and self.reader.rows % self.reader.batch_size == 1 else count

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        batches = self._batches(epoch)
        return batches if self._convert is None else map(self._convert, batches)

    def _batches(self, epoch: int) -> Iterator[Any]:
        if self.steps is None:
            return self._epochs_batches(epoch)
        if self.steps < self.reader.rows // self.reader.batch_size:
            if self._endless is None:
                self._endless = self._on_and_on(itertools.count())
            return itertools.islice(self._endless, self.steps)
        return itertools.islice(self._on_and_on(itertools.repeat(epoch)), self.steps)

    def _on_and_on(self, epochs: Iterator[int]) -> Iterator[Any]:
        for epoch in epochs:
            found = False
            for batch in self._epochs_batches(epoch):
                found = True
                yield batch
            if not found:
                yield self.reader.sample()

    def _epochs_batches(self, epoch: int) -> Iterator[Any]:
        batches = self.reader.batches(epoch)
        return _without_single(batches) if self._joins else batches

    def close(self) -> None:
        """Stop the threads that read ahead."""
        self._endless = None
        self.reader.close()


def _without_single(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches. If the last one has a single row, it joins the one before."""
    held: list[Any] = []
    for batch in batches:
        if held and _batches.rows(batch) > 1:
            yield held.pop()
        held.append(batch)
    if held:
        yield _batches.join(held)
