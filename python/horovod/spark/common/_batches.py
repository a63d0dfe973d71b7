"""Makes batches of a reader's rows: shuffled within a window, and all of one size except the last."""

from __future__ import annotations

import sys
from typing import Iterable, Iterator, Optional

import numpy as np

Columns = dict[str, np.ndarray]


def size(columns: Columns) -> int:
    """How many bytes the arrays take, with their objects, such as strings."""
    arrays = columns.values()
    return sum(a.nbytes + (sum(map(sys.getsizeof, a.flat)) if a.dtype == object else 0) for a in arrays)


def rows(columns: Columns) -> int:
    """How many rows the arrays have."""
    return next((len(array) for array in columns.values()), 0)


def windows(loaded: Iterable[Columns], limit: int) -> Iterator[Columns]:
    """The loaded rows, joined until they take ``limit`` bytes."""
    parts: list[Columns] = []
    held = 0
    for part in loaded:
        taken = size(part)
        if parts and held + taken > limit:
            yield join(parts)
            held = 0
        parts.append(part)
        held += taken
        del part
    if parts:
        yield join(parts)


def join(parts: list[Columns]) -> Columns:
    """The rows of all parts. Empties the list, and each part as its columns are joined, so that memory is free soon."""
    if len(parts) == 1:
        return parts.pop()
    joined = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
    parts.clear()
    return joined


def batches(
    loaded: Iterable[Columns], batch_size: int, shuffle: Optional[np.random.Generator], drop_last: bool
) -> Iterator[Columns]:
    """Batches of ``batch_size`` rows. The last one may have fewer, unless it is dropped.

    Args:
        loaded: windows of rows.
        batch_size: rows of a batch.
        shuffle: permutes the rows of each window, or None for their order.
        drop_last: whether to drop rows at the end that fill no batch.
    """
    begun: list[Columns] = []  # parts of the next batch
    for window in loaded:
        count = rows(window)
        ordered = shuffle.permutation(count) if shuffle is not None else None
        at = 0
        while at < count:
            stop = min(count, at + batch_size - sum(map(rows, begun)))
            begun.append(_pick(window, ordered, at, stop))
            at = stop
            if sum(map(rows, begun)) == batch_size:
                yield join(begun)
        del window
    if begun and not drop_last:
        yield join(begun)


def _pick(window: Columns, ordered: Optional[np.ndarray], first: int, stop: int) -> Columns:
    """Copies of some rows, so that a batch does not keep the window."""
    if ordered is None:
        return {name: array[first:stop].copy() for name, array in window.items()}
    return {name: array[ordered[first:stop]] for name, array in window.items()}
