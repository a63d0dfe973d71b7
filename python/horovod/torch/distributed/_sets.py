"""Process sets for groups. torch.distributed calls only the members of a group; the engine needs all ranks.

So every rank has a thread that adds and removes sets on demand. Rank 0 gives their order:

    member ── acquire, release ──▶ rank 0: order() ── add, remove, grant ──▶ every rank: obey()

Groups of the same ranks share a set. It is removed once every member has released it as often as it has acquired it.
After a rank has left, the others still add sets, since rank 0's order is all that they need. They remove none.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import datetime
import json
import threading
import time
import weakref
from typing import Any, Iterable, Optional, Sequence

from horovod.common import _lib
from horovod.common._job import basics as _basics
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.distributed import _threads

_REQUESTS = (1 << 31) | 1
_ORDERS = (1 << 31) | 2
_MESSAGE_BYTES = 1 << 16
_NO_ORDER = "rank 0, which orders them, does not answer; make all groups before it ends."


class Set:
    """A process set of the engine that is in use; ``number`` is its id."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Table:
    """A rank's state of the sets in one generation of the engine."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.numbers: dict[tuple[int, ...], int] = {}
        self.ours: set[int] = set()  # those that the threads have added
        self.refused: dict[tuple[int, ...], str] = {}
        self.granted: dict[int, tuple[Optional[int], str]] = {}  # by ticket
        self.tickets = 0
        self.ended: Optional[str] = None


_table: Optional[_Table] = None


def start() -> None:
    """Start this rank's threads, for this generation of the engine. All ranks call it."""
    global _table
    if _table is not None and _table.ended is None:
        return
    _table = _Table()
    _threads.start("sets", _obey, _table)
    if _basics.rank() == 0:
        _threads.start("sets order", _order, _basics.size())


def acquire(ranks: Sequence[int], rank: int, timeout: datetime.timedelta) -> Set:
    """The set of these world ranks, for a group of them; all of them call it. Dropping the returned object releases it.

    Raises ValueError if the engine refuses the set, HorovodInternalError if the engine has ended.
    """
    if list(ranks) == list(range(_basics.size())):
        return Set(0)
    table = _table
    if table is None:
        raise RuntimeError('initialise the default group with backend "gorovod" before new_group(backend="gorovod")')
    with table.changed:
        ticket = table.tickets = table.tickets + 1
    key = tuple(ranks)
    try:
        _send(0, _REQUESTS, {"do": "acquire", "ranks": key, "from": _basics.rank(), "ticket": ticket})
    except HorovodInternalError as e:
        raise HorovodInternalError(f"no process set for ranks {list(ranks)}: {_NO_ORDER} ({e})") from e
    with table.changed:
        deadline = time.monotonic() + timeout.total_seconds()
        while ticket not in table.granted and table.ended is None:
            if time.monotonic() > deadline:
                raise HorovodInternalError(f"no process set for ranks {list(ranks)}: not all ranks have answered")
            table.changed.wait(0.1)
        if ticket not in table.granted:
            raise HorovodInternalError(f"no process set for ranks {list(ranks)}: {table.ended}")
        number, reason = table.granted.pop(ticket)
    if number is None:
        raise ValueError(f"no process set for ranks {list(ranks)}: {reason}")
    used = Set(number)
    weakref.finalize(used, _release, key, table).atexit = False
    return used


def _release(key: tuple[int, ...], table: _Table) -> None:
    if table is _table and table.ended is None:
        with contextlib.suppress(Exception):  # the engine may have ended
            _send(0, _REQUESTS, {"do": "release", "ranks": key, "from": _basics.rank(), "ticket": 0}, timeout_ms=1000)


def _send(to: int, tag: int, message: dict, timeout_ms: int = -1) -> None:
    text = json.dumps(message).encode()
    buffer = ctypes.create_string_buffer(text, len(text))
    _lib.send(to, tag, 0, ctypes.addressof(buffer), len(text), timeout_ms)


def _receive(source: Optional[int], tag: int, buffer: ctypes.Array) -> dict:
    _, length, _ = _lib.recv(source, tag, ctypes.addressof(buffer), len(buffer))
    if length > len(buffer):
        raise ValueError(f"a message about a process set has {length} bytes, where {len(buffer)} are possible")
    return json.loads(buffer.raw[:length])


def _order(size: int) -> None:
    """Rank 0's thread: turns requests into orders, which all ranks get in the same order."""
    uses: collections.Counter[tuple[int, ...]] = collections.Counter()
    buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)
    gone: set[int] = set()

    def to(ranks: Iterable[int], do: str, key: tuple[int, ...], **details: Any) -> None:
        for rank in ranks:
            if rank not in gone:
                try:
                    _send(rank, _ORDERS, {"do": do, "ranks": key, **details})
                except HorovodInternalError:  # it has left, or the engine has ended, and so does the next receive
                    gone.add(rank)

    def serve(request: dict) -> None:
        key = tuple(request["ranks"])
        if request["do"] == "release":
            uses[key] -= 1
            if uses[key] == 0:
                to(range(size), "remove", key)
            return
        to(key, "expect a group", key)  # they need not, but it fails for ranks that have left
        refusal = " and ".join(f"rank {rank} has left" for rank in sorted(gone.intersection(key)))
        if not refusal:
            if uses[key] == 0:
                to(range(size), "add", key)
            uses[key] += 1
        to([request["from"]], "grant", key, ticket=request["ticket"], refusal=refusal)

    with contextlib.suppress(HorovodInternalError):  # this thread ends with the engine
        for source in None, 0:  # rank 0 alone, once all others have left
            with contextlib.suppress(HorovodInternalError):
                while True:
                    serve(_receive(source, _REQUESTS, buffer))


def _obey(table: _Table) -> None:
    """Every rank's thread: adds and removes sets as rank 0 orders."""
    buffer = ctypes.create_string_buffer(_MESSAGE_BYTES)
    try:
        while True:
            order = _receive(0, _ORDERS, buffer)
            key = tuple(order["ranks"])
            if order["do"] == "add":
                _add(table, key)
            elif order["do"] == "remove":
                _remove(table, key)
            elif order["do"] == "grant":
                number = None if order["refusal"] else table.numbers.get(key)
                with table.changed:
                    table.granted[order["ticket"]] = (number, order["refusal"] or table.refused.get(key, ""))
                    table.changed.notify_all()
    except Exception as e:
        with table.changed:
            table.ended = str(e)
            table.changed.notify_all()


def _add(table: _Table, key: tuple[int, ...]) -> None:
    known = {tuple(ranks): number for number, ranks in _basics._get_process_set_ids_and_ranks().items()}
    number = known.get(key)  # from hvd.add_process_set: on all ranks
    try:
        if number is None:
            number = _basics._add_process_set_of_the_rest(key)
            if number is None:
                raise ValueError(f"there is a process set of the ranks {list(key)} already")
            table.ours.add(number)
        table.numbers[key] = number
        table.refused.pop(key, None)
    except ValueError as e:
        table.refused[key] = str(e)


def _remove(table: _Table, key: tuple[int, ...]) -> None:
    number = table.numbers.get(key)
    if number in table.ours:
        try:
            _basics._remove_process_set_impl(number)
        except HorovodInternalError:
            return  # a rank has left, so the set stays, for the next group of these ranks
        table.ours.remove(number)
    table.numbers.pop(key, None)
