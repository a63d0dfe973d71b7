"""Gives each process the same number of batches, so that Lightning's loops and hooks run in the same order."""

from __future__ import annotations

import itertools
from typing import Any, Iterator, Optional

import torch

_FILLING = 2  # rows of a batch that fills an epoch up; batch normalization cannot train with one


class Even:
    """A process's batches. An iteration has the batches of one epoch. While others have more, it repeats a small batch.

    Args:
        batches: of this process: an iterable whose length may be wrong if ``known`` is false.
        hvd: ``horovod.torch``.
        known: whether ``len(batches)`` is right. A transformation may remove rows.
    """

    def __init__(self, batches: Any, hvd: Any, known: bool) -> None:
        self._batches = batches
        self._hvd = hvd
        counts = hvd.allgather_object(len(batches)) if known else [0]
        self._steps: Optional[int] = max(counts) if known else None
        self._lacks = min(counts) == 0
        self._own: Optional[int] = None

    def __len__(self) -> int:
        """How many batches an iteration has. Raises TypeError if that is unknown."""
        if self._steps is None:
            raise TypeError("the transformation decides how many batches there are")
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch.

        Raises:
            ValueError: no process has rows.
        """
        self._own = None
        last = None
        for step, batch in enumerate(itertools.chain(self._batches, itertools.repeat(None))):
            if step == 0 and self._lacks:
                last = self._anybodys(batch)
            if not self._goes_on(step, batch is not None):
                return
            if batch is None:
                self._own = step if self._own is None else self._own
                batch = _head(last)
            last = batch
            yield batch

    def fills(self, step: int) -> bool:
        """Whether this batch of the epoch is a repetition, which must not count."""
        return self._own is not None and step >= self._own

    def _anybodys(self, batch: Any) -> Any:
        heads = self._hvd.allgather_object(None if batch is None else _head(batch), name="spark.heads")
        found = next((head for head in heads if head is not None), None)
        if found is None:
            raise ValueError("there are no rows to train on: the transformation has left none")
        return found

    def _goes_on(self, step: int, have: bool) -> bool:
        if self._steps is not None:
            return step < self._steps
        return bool(
            self._hvd.allreduce(torch.tensor([int(have)], device="cpu"), op=self._hvd.Sum, name="spark.more").item()
        )


def _head(batch: Any) -> dict[str, Any]:
    return {name: column[:_FILLING].clone() for name, column in batch.items()}
