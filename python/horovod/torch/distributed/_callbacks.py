"""Operations that callbacks of futures start: how the ranks of a group know which of them belong together.

A rank cannot tell when a callback runs: in the thread that ends the backward pass, in the watcher, or at once in the
thread that adds it. So an operation from a callback is not counted among those of the program. Its name says where it
hangs, which is the same on all ranks:

    5                the program's operation number 5 of the group
    5.then.0         the first operation that a callback of number 5 starts in the group
    5.then.0.then.1  the second one that a callback of that one starts
    1-5.then.0       the first one that a callback of number 5 of another group starts here; 1 is that group's place
                     among those of whose operations this process has asked for futures

Callbacks of one operation, and of what ``then`` has made of its future, run in any order, in several threads, too. But
before a callback starts an operation, it waits for those that the program has added before it. So all ranks count
alike.

The numbers begin again after ``NAMES`` operations. So a program that adds callbacks to operations so far apart adds
them in the order of the operations; a rank that starts theirs in another order gets an error.

PyTorch's futures are C++ objects. So ``then`` and three other functions are replaced, which change nothing for futures
that do not come from an operation of this backend.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import time
import weakref
from typing import Any, Callable, MutableMapping, Optional, Sequence

import torch

from horovod.common import _patches
from horovod.common.exceptions import HorovodInternalError

# Callbacks of a group's operations that are so many numbers apart have the same names for their operations. It divides
# the count of the names of the program's operations, and both together are fewer than the engine remembers.
NAMES = 120
_LONGEST_PATH = 60

_LOOK_S = 0.1


class Place:
    """The place of a group among the groups of this process whose operations have had futures, in that order.

    The members of a group may belong to different groups besides, such as those of their hosts, whose callbacks start
    operations in the common one. So a place is counted by each process. A group of which only some ranks are members
    shifts the places of no others as long as nobody asks for its futures.
    """

    _guard = threading.Lock()
    _numbers = itertools.count()

    def __init__(self) -> None:
        self._number: Optional[int] = None

    @classmethod
    def begin(cls) -> None:
        """Count from 0 again: a new default group is made."""
        cls._numbers = itertools.count()

    def number(self) -> int:
        """The place, which the first call determines."""
        with Place._guard:
            if self._number is None:
                self._number = next(Place._numbers)
            return self._number


class Origin:
    """An operation whose future has callbacks.

    Operations with the same ``path`` share ``line``: their callbacks in the order in which the program has added them,
    by number, without those that have ended or can no longer run. ``lines`` has the lines of a group, by path. ``turn``
    is the number of the program's operation from which this one comes, in the order in which it started them.
    """

    def __init__(self, lines: MutableMapping[str, Line], place: Place, path: str, turn: int) -> None:
        self._place = place  # of its group
        self._path = path
        self._lines = lines  # of its group, by path
        self.turn = turn
        self._started: dict[Place, itertools.count[int]] = {}

    @functools.cached_property
    def line(self) -> Line:
        """The line of the path. Most operations have no future, and need none."""
        return self._lines.setdefault(self._path, Line())

    def asked(self) -> None:
        """Note that the program has asked for the operation's future."""
        self._place.number()

    def next(self, place: Place) -> str:
        """The path of the next operation that a callback starts in the group of this place."""
        self.line.take_turn(self.turn)
        path = self._path if place is self._place else f"{self._place.number()}-{self._path}"
        started = self._started.setdefault(place, itertools.count())
        return _bounded(f"{path}.then.{next(started)}")


class MessageOrigin(Origin):
    """A ``send`` or ``recv`` whose future has callbacks. Other ranks do not have it, so its callbacks start nothing."""

    turn = 0

    def __init__(self, what: str) -> None:
        self._what = what
        self.line = Line()

    def asked(self) -> None:
        pass

    def next(self, place: Place) -> str:
        raise ValueError(
            f"a callback of the future of a {self._what} cannot start a collective: the group's other ranks cannot "
            f"tell which of theirs belongs to it. Wait for the message, and start the collective after that"
        )


class Line:
    """Callbacks that start their operations one after the other."""

    def __init__(self) -> None:
        self.ended = threading.Condition()  # guards all fields
        self.numbers = itertools.count()
        self.callbacks: weakref.WeakValueDictionary[int, _Callback] = weakref.WeakValueDictionary()
        self._turn = 0

    def take_turn(self, turn: int) -> None:
        """Start an operation in a callback of the operation of this turn; later turns must not have come before."""
        with self.ended:
            if turn < self._turn:
                raise HorovodInternalError(
                    f"a callback of a future starts an operation after one of another future, whose operation began "
                    f"{self._turn - turn} operations later: callbacks of operations that are {NAMES} or more apart "
                    f"must be added in the order of the operations, since other ranks could not tell them apart"
                )
            self._turn = turn


class _Here(threading.local):
    callback: Optional[_Callback] = None  # the innermost one that this thread runs


here = _Here()
running: set[_Callback] = set()  # of all threads
_origins: weakref.WeakKeyDictionary[torch._C.Future, Origin] = weakref.WeakKeyDictionary()


class _Callback:
    """A callback of a future that comes from an operation."""

    def __init__(self, origin: Origin, run: Callable[[Any], Any]) -> None:
        self.origin = origin
        self._run = run
        self._outer: Optional[_Callback] = None
        line = origin.line
        with line.ended:
            self._number = next(line.numbers)
            line.callbacks[self._number] = self

    def __call__(self, future: torch._C.Future) -> Any:
        _origins.setdefault(future, self.origin)
        self._outer, here.callback = here.callback, self
        running.add(self)
        try:
            return self._run(future)
        finally:
            running.discard(self)
            here.callback, self._outer = self._outer, None
            line = self.origin.line
            with line.ended:
                line.callbacks.pop(self._number, None)
                line.ended.notify_all()

    def await_earlier(self, what: str, seconds: float) -> None:
        """Wait for callbacks of the line that have been added before, except those in which this one runs."""
        around = set()
        outer = self._outer
        while outer is not None:
            around.add(outer)
            outer = outer._outer
        line, deadline = self.origin.line, time.monotonic() + seconds
        with line.ended:
            while any(number < self._number and callback not in around for number, callback in line.callbacks.items()):
                if time.monotonic() > deadline:
                    raise HorovodInternalError(
                        f"{what}, begun in a callback of a future, has not started within {seconds:g} s: it waits for "
                        f"an earlier callback of the same operation, which has not ended"
                    )
                line.ended.wait(_LOOK_S)


class _Undecided:
    """A callback of a future that comes from no operation yet. A callback of one may be about to complete it."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run = run
        self.derived: Callable[[], Optional[torch._C.Future]] = lambda: None  # what ``then`` has made, once it is known

    def __call__(self, future: torch._C.Future) -> Any:
        origin, derived = _origins.get(future), self.derived()
        if origin is None:
            return self._run(future)
        if derived is not None:
            _origins.setdefault(derived, origin)
        inside = here.callback is not None and here.callback.origin is origin
        return self._run(future) if inside else _Callback(origin, self._run)(future)


def inside() -> bool:
    """Whether this thread runs a callback."""
    return here.callback is not None


def turn() -> Optional[int]:
    """The turn of the operation whose callback this thread runs; None if it runs none."""
    return None if here.callback is None else here.callback.origin.turn


def path(place: Place, what: str, seconds: float) -> Optional[str]:
    """The path of the operation that this thread starts now in the group of this place; None if no callback starts it.

    Waits, at most ``seconds``, until it is this callback's turn; raises HorovodInternalError after that.
    """
    callback = here.callback
    if callback is None:
        return None
    callback.await_earlier(what, seconds)
    return callback.origin.next(place)


def stream(path: str) -> int:
    """A number of the operations that callbacks of one operation start: all ranks start these in one order."""
    line = path.rpartition(".then.")[0]
    return 1 << 32 | int.from_bytes(hashlib.blake2b(line.encode(), digest_size=3).digest(), "big")


def belongs(future: torch._C.Future, origin: Origin) -> None:
    """Note that callbacks of ``future`` are callbacks of ``origin``."""
    origin.asked()
    _origins[future] = origin


def of_several(origins: Sequence[Origin]) -> Optional[Origin]:
    """The origin of what ends when all of these have ended: the first one whose operation all ranks of a group have."""
    return min(origins, key=lambda origin: isinstance(origin, MessageOrigin), default=None)


def _bounded(path: str) -> str:
    """``path``, or a digest of it: callbacks of callbacks of callbacks may have long ones."""
    if len(path) <= _LONGEST_PATH:
        return path
    return hashlib.blake2b(path.encode(), digest_size=16).hexdigest()


# ---- The functions that replace those of PyTorch's futures.

then = torch._C.Future.then
set_result = torch._C.Future.set_result
_add_done_callback = torch._C.Future.add_done_callback
_collect_all = torch._C._collect_all


def _then_of_origin(future: torch._C.Future, callback: Callable[[Any], Any]) -> torch._C.Future:
    origin = _origins.get(future)
    if origin is not None:
        derived = then(future, _Callback(origin, callback))
        _origins[derived] = origin
        return derived
    undecided = _Undecided(callback)
    derived = then(future, undecided)
    undecided.derived = weakref.ref(derived)
    origin = _origins.get(future)  # meanwhile
    if origin is not None:
        _origins.setdefault(derived, origin)
    return derived


def _add_done_callback_of_origin(future: torch._C.Future, callback: Callable[[Any], Any]) -> None:
    origin = _origins.get(future)
    _add_done_callback(future, _Undecided(callback) if origin is None else _Callback(origin, callback))


def _set_result_of_origin(future: torch._C.Future, result: Any) -> None:
    """Callbacks of a future that a callback completes are callbacks of the same operation."""
    if here.callback is not None:
        _origins.setdefault(future, here.callback.origin)
    set_result(future, result)


def _collect_all_of_origin(futures: Sequence[torch._C.Future]) -> torch._C.Future:
    """Callbacks of a future of several are callbacks of the first one that is no message."""
    collected = _collect_all(futures)
    origin = of_several([_origins[future] for future in futures if future in _origins])
    if origin is not None:
        _origins[collected] = origin
    return collected


def patch() -> None:
    """Replace the functions."""
    for owner, name, function in (
        (torch._C.Future, "then", _then_of_origin),
        (torch._C.Future, "add_done_callback", _add_done_callback_of_origin),
        (torch._C.Future, "set_result", _set_result_of_origin),
        (torch._C, "_collect_all", _collect_all_of_origin),
    ):
        _patches.replace("torch-futures", owner, name, function)
