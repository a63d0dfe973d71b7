"""Sparse tables, as all front ends use them: the life of a table, and of what a rank asks of it for a batch.

    Table ──▶ lookup(keys) ──▶ pull ──▶ wait ──▶ push ──▶ wait

Rows live in the engine. ``include/gorovod.h`` describes the calls.
"""

from __future__ import annotations

import ctypes
import math
import numbers
import weakref
from typing import Any, Callable, Optional, Union

from horovod.common import _arguments, _cells, _lib, _operations, basics

Rate = Union[float, Callable[[int], float]]

_LOOKS = 32  # GOROVOD_LOOKS
_UINT8 = 0  # GOROVOD_UINT8

OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "adam", "ftrl")


class _Description(ctypes.Structure):
    """gorovod_table."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("process_set", ctypes.c_int32),
        ("name", ctypes.c_char_p),
        ("keys", ctypes.c_int64),
        ("seed", ctypes.c_uint64),
        ("dim", ctypes.c_int32),
        ("init", ctypes.c_char_p),
        ("optimizer", ctypes.c_char_p),
        ("scale", ctypes.c_float),
        ("rate", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        ("initial_accumulator", ctypes.c_float),
        ("beta1", ctypes.c_float),
        ("beta2", ctypes.c_float),
        ("beta", ctypes.c_float),
        ("l1", ctypes.c_float),
        ("l2", ctypes.c_float),
        ("admit_after", ctypes.c_uint32),
        ("evict_idle", ctypes.c_uint32),
        ("evict_keep", ctypes.c_uint32),
        ("max_rows", ctypes.c_int64),
    ]


# The numbers of a table that have defaults in the library, by their names in Python.
NUMBERS = {
    "scale": "scale",
    "eps": "epsilon",
    "initial_accumulator": "initial_accumulator",
    "beta1": "beta1",
    "beta2": "beta2",
    "beta": "beta",
    "l1": "l1",
    "l2": "l2",
}

# Which keys have rows: whole numbers, with their largest values.
LIMITS = {"admit_after": 2**32 - 1, "evict_idle": 2**32 - 1, "evict_keep": 2**32 - 1, "max_rows": 2**63 - 1}


class Table:
    """A table of a process set. All members make it with equal arguments. Blocks until they have.

    ``lr`` may be a function of the number of pushes so far. Changes of the attribute count from the next push on.
    Raises ValueError, TypeError, and HorovodInternalError if the ranks differ.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        num_embeddings: Optional[int],
        optimizer: str,
        lr: Optional[Rate],
        seed: int,
        init: str,
        process_set: int,
        **options: Optional[float],
    ) -> None:
        if _lib.load().gorovod_elastic() != _lib.NOT_ELASTIC:
            raise NotImplementedError("sparse tables are not possible in elastic jobs yet: rows would be lost")
        described = _Description(size=ctypes.sizeof(_Description), process_set=process_set)
        self.name, self.dim, self.num_embeddings = name, _integer(dim, "dim"), num_embeddings
        self.optimizer, self.pushes = _text(optimizer, "optimizer"), 0
        described.name = (_arguments.name(name) or "").encode()
        described.dim = _lib.int32(self.dim, "dim")
        described.keys = 0 if num_embeddings is None else _keys(num_embeddings)
        described.seed = _integer(seed, "seed") & (1 << 64) - 1
        described.init, described.optimizer = _text(init, "init").encode(), self.optimizer.encode()
        for option, field in NUMBERS.items():
            value = options.pop(option, None)
            setattr(described, field, -1.0 if value is None else _not_negative(value, option))
        for option, most in LIMITS.items():
            value = options.pop(option, None)
            setattr(described, option, 0 if value is None else _count(value, option, most))
        assert not options, options
        self.lr: Rate = {"adam": 0.001}.get(optimizer, 0.01) if lr is None else lr
        described.rate = self.rate()
        meet(name, process_set)
        number = ctypes.c_int64()
        status = _lib.load().gorovod_table_create(ctypes.byref(described), number)
        if status != _lib.OK:
            raise _lib.error(status)
        self.number = number.value
        _known[self.number] = self

    def rate(self) -> float:
        """The learning rate of the next push."""
        lr = self.lr
        return _not_negative(lr(self.pushes) if callable(lr) else lr, "lr")

    def begin_push(self) -> float:
        """Count a push, and return its learning rate."""
        rate = self.rate()
        self.pushes += 1
        return rate

    def rows(self) -> int:
        """How many rows this rank has."""
        return max(0, int(_lib.load().gorovod_table_rows(self.number)))

    def lookup(self, keys: int, count: int, index: int, padding: Optional[int] = None) -> Lookup:
        """The lookup of ``count`` int64 keys at an address. Their places among the distinct ones go to ``index``."""
        return Lookup(self, self.number, keys, count, index, padding)

    def __deepcopy__(self, memo: Any) -> Table:
        return self  # the rows are the engine's; a copy of a model uses the same

    def __reduce__(self) -> Any:
        raise TypeError(f"sparse table {self.name!r} cannot be pickled: its rows are divided among the ranks")


class Lookup:
    """What this rank asks of a table for a batch. ``distinct`` is the number of distinct keys, without the padding."""

    def __init__(self, table: Table, number: int, keys: int, count: int, index: int, padding: Optional[int]) -> None:
        distinct, lookup = ctypes.c_int64(), ctypes.c_int64()
        none = None if padding is None else ctypes.byref(ctypes.c_int64(padding))
        status = _lib.load().gorovod_lookup(number, keys, count, none, index, distinct, lookup)
        if status != _lib.OK:
            raise _lib.error(status)
        self.table, self.distinct, self._number = table, distinct.value, lookup.value
        released = weakref.finalize(self, _lib.load().gorovod_lookup_release, self._number)
        released.atexit = False

    def pull(self, rows: int, looks: bool, keeps: Any) -> Pending:
        """Begin to write the rows of the distinct keys to ``rows``. ``looks``: make no rows. Keeps ``keeps``."""
        handle = ctypes.c_int64()
        flags = _LOOKS if looks else 0
        status = _lib.load().gorovod_pull(1, ctypes.c_int64(self._number), ctypes.c_void_p(rows), flags, handle)
        return Pending(self, status, handle.value, keeps)

    def push(self, gradients: int, keeps: Any) -> Pending:
        """Begin to change the rows of the distinct keys by ``gradients``."""
        handle = ctypes.c_int64()
        rate = self.table.begin_push()
        number, address = ctypes.c_int64(self._number), ctypes.c_void_p(gradients)
        status = _lib.load().gorovod_push(1, number, address, rate, 0, handle)
        return Pending(self, status, handle.value, keeps)


# The tables, by the library's numbers, while somebody has them.
_known: weakref.WeakValueDictionary[int, Table] = weakref.WeakValueDictionary()

# How many tables without a name each process set has, since the job began.
_unnamed: dict[int, int] = {}
basics.before_init.append(_unnamed.clear)


def unnamed(process_set: int) -> str:
    """A name for a table that has none: the same on all ranks if they make their tables in the same order."""
    _unnamed[process_set] = _unnamed.get(process_set, 0) + 1
    return f"embedding.{_unnamed[process_set]}"


@ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)
def next_rate(number: int, text: int, size: int) -> float:
    """:meth:`Table.begin_push` for C: writes a text that says why there is no rate, and returns a NaN."""
    try:
        table = _known.get(number)
        if table is None:
            raise ValueError(f"no part of the program has table {number} any more")
        return table.begin_push()
    except Exception as e:
        said = f"{type(e).__name__}: {e}".encode(errors="replace")[: size - 1] + b"\0"
        ctypes.memmove(text, said, len(said))
        return math.nan


def meet(name: str, process_set: int) -> None:
    """Wait until all members make the table. Python handles signals meanwhile; the library's own wait is short then."""
    here = ctypes.create_string_buffer(1)
    operation = _operations.describe(
        f"table.{name}".encode(), (0,), _cells.WILL_WAIT, _lib.NAMED_BARRIER, _UINT8, 0, 0, process_set, 1.0, 1.0,
        ctypes.addressof(here), 0,
    )  # fmt: skip
    operation.keeps = here
    group = _operations.Group([operation])
    try:
        group.submit_as_fits(None)
    except Exception:
        group.free()
        raise
    try:
        status = group.wait()
    except BaseException:
        _operations.abandon(group)
        raise
    try:
        if status != _lib.OK:
            raise group.failure()
    finally:
        group.release()


# Operations that nobody waits for, with the memory that the engine may still use.
_abandoned: list[Pending] = []


class Pending:
    """A pull or push in progress. Raises at once if it could not be submitted."""

    _handle = 0  # also if it could not be submitted

    def __init__(self, lookup: Lookup, status: int, handle: int, keeps: Any) -> None:
        if status != _lib.OK:
            raise _lib.error(status)
        self._lookup, self._handle, self._keeps = lookup, handle, keeps

    def wait(self) -> None:
        """Wait for the end. Raises ValueError for this rank's own mistake, otherwise HorovodInternalError."""
        if not self._handle:
            return
        status = _lib.wait(self._handle)
        handle, self._handle = self._handle, 0
        try:
            if status != _lib.OK:
                raise _lib.error(status)
        finally:
            _lib.release(handle)

    def _released(self) -> bool:
        """Release it if it has ended."""
        if _lib.load().gorovod_wait(self._handle, 0) == _lib.IN_PROGRESS:
            return False
        _lib.release(self._handle)
        self._handle = 0
        return True

    def __del__(self) -> None:
        if self._handle and not self._released():  # for example after Ctrl-C
            _abandoned[:] = [other for other in _abandoned if not other._released()] + [self]


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{what} must be an int, not {value!r}")
    return int(value)


def _keys(value: Any) -> int:
    if _integer(value, "num_embeddings") < 1:
        raise ValueError(f"num_embeddings must be above 0, or None for keys of any value, not {value}")
    return int(value)


def _count(value: Any, what: str, most: int) -> int:
    if not 0 <= _integer(value, what) <= most:
        raise ValueError(f"{what} must be from 0 to {most}, not {value}")
    return int(value)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    return value


def _not_negative(value: Any, what: str) -> float:
    number = _arguments.number(value, what)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{what} must be a number from 0 on, not {number}")
    return number
