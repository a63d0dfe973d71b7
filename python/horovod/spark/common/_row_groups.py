"""Decides which rows of which row groups a process reads in an epoch, and in which pieces. It reads no files."""

from __future__ import annotations

import dataclasses
from typing import Iterator, Optional, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class RowGroup:
    """A row group of a file.

    Attributes:
        file: the file's index.
        index: the row group's index in the file.
        rows: how many it has.
        size: about how many bytes they take when decoded.
    """

    file: int
    index: int
    rows: int
    size: int


@dataclasses.dataclass(frozen=True)
class Piece:
    """The rows from ``first`` to ``stop`` of a row group."""

    group: RowGroup
    first: int
    stop: int

    @property
    def size(self) -> int:
        """About how many bytes the rows take."""
        return self.group.size * (self.stop - self.first) // max(self.group.rows, 1)


def order(count: int, seed: Optional[int], epoch: int) -> Sequence[int]:
    """The order in which the row groups are read in an epoch, which is the same in all processes.

    Without a seed it is the order of the files.
    """
    if seed is None:
        return range(count)
    return [int(i) for i in np.random.default_rng([seed, epoch]).permutation(count)]


def shard(groups: Sequence[RowGroup], ordered: Sequence[int], cur_shard: int, shard_count: int) -> list[Piece]:
    """The rows of one process. Each row belongs to one process, and the processes' numbers of rows differ by at most
    one.

    Both processes read a row group on the border of their shards, and each takes its rows.
    """
    rows = sum(group.rows for group in groups)
    begin, end = (rows * i // shard_count for i in (cur_shard, cur_shard + 1))
    pieces = []
    before = 0
    for i in ordered:
        first, stop = max(begin - before, 0), min(end - before, groups[i].rows)
        if first < stop:
            pieces.append(Piece(groups[i], first, stop))
        before += groups[i].rows
    return pieces


def shard_rows(rows: int, cur_shard: int, shard_count: int) -> int:
    """How many rows :func:`shard` gives a process."""
    return rows * (cur_shard + 1) // shard_count - rows * cur_shard // shard_count


def cut(piece: Piece, limit: int) -> Iterator[Piece]:
    """The piece in parts of about ``limit`` bytes at most."""
    each = max(1, (piece.stop - piece.first) * limit // max(piece.size, 1))
    for first in range(piece.first, piece.stop, each):
        yield dataclasses.replace(piece, first=first, stop=min(first + each, piece.stop))
