"""The library's facts about its operations. The front ends ask here, and compute none of it themselves.

The functions load the library. They return the same value each time, which must not be changed.
"""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple, Optional

from horovod.common import _lib


class Kind(NamedTuple):
    """A kind of operation. The numbers are those that ``gorovod_op`` takes."""

    number: int
    reduce_ops: frozenset[int]  # reduce operations that the kind accepts; empty if it does not combine elements
    sized_by_all: bool  # the output's size depends on the other ranks, so the engine may allocate it


@functools.lru_cache(maxsize=None)
def _all() -> Any:
    return json.loads(_lib.load().gorovod_facts())


@functools.lru_cache(maxsize=None)
def element_types() -> dict[str, int]:
    """The numbers of the element types, by names such as ``float32``, which frameworks use, too."""
    return {t["name"]: t["number"] for t in _all()["element_types"]}


@functools.lru_cache(maxsize=None)
def reduced_types() -> frozenset[str]:
    """The names of the element types that host memory can combine. Elements of other types it can only move."""
    return frozenset(t["name"] for t in _all()["element_types"] if t["reduced"])


@functools.lru_cache(maxsize=None)
def reduce_ops() -> dict[str, int]:
    """The numbers of the reduce operations, by names such as ``average``."""
    return {op["name"]: op["number"] for op in _all()["reduce_ops"]}


class Wire(NamedTuple):
    """A form in which sums and averages travel between hosts. The number is the one that ``gorovod_op`` takes."""

    number: int
    types: frozenset[str]  # the names of the element types that have this form
    keeps: bool  # ranks keep the rounding errors of a tensor under its name


@functools.lru_cache(maxsize=None)
def wires() -> dict[str, Wire]:
    """The forms, by names such as ``fp16``."""
    names = {number: name for name, number in element_types().items()}
    return {
        wire["name"]: Wire(wire["number"], frozenset(names[number] for number in wire["types"]), wire["keeps"])
        for wire in _all()["wires"]
    }


def kept_wire(name: str) -> Wire:
    """The form of that name, which keeps errors. AttributeError if there is none: of ``hvd.Compression``."""
    wire = wires().get(name)
    if wire is None or not wire.keeps:
        raise AttributeError(f"hvd.Compression has no {name!r}; there are {', '.join(wires())}")
    return wire


@functools.lru_cache(maxsize=None)
def kinds() -> dict[str, Kind]:
    """The kinds of operations, by names such as ``allreduce``."""
    return {
        operation["name"]: Kind(
            operation["number"],
            frozenset(op["number"] for op in operation["reduce_ops"]),
            operation["output"] in ("of all", "sent", "own rows"),
        )
        for operation in _all()["operations"]
    }


def share(rows: int, process_set_id: int) -> Optional[int]:
    """How many rows of a reducescatter this process gets; None if it is no member of the set."""
    member = _lib.rank_and_size(process_set_id)
    return None if member is None else _lib.load().gorovod_share(rows, *member)


def bounds(rows: int, process_set_id: int) -> Optional[tuple[int, int]]:
    """The first of the rows that this process gets of a reducescatter, and the row behind its last one."""
    member = _lib.rank_and_size(process_set_id)
    if member is None:
        return None
    library = _lib.load()
    begin = library.gorovod_share_begin(rows, *member)
    return begin, begin + library.gorovod_share(rows, *member)


def symbolic_share(rows: Any, process_set_id: int) -> Any:
    """As :func:`share`, for a number of rows that is a symbol of a compiler. The function compares nothing with it.

    The rows are dealt out in turn, so the ranks differ only in their first row. A process that is no member gets the
    rows of a set that has only this rank.
    """
    rank, size = _lib.rank_and_size(process_set_id) or (0, 1)
    gorovod_share = _lib.load().gorovod_share
    first = next(n for n in range(1, size + 1) if gorovod_share(n, rank, size) == 1)
    return (rows + size - first) // size
