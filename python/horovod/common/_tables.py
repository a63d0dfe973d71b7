"""Sparse tables, as all front ends use them: the life of a table, and of what a rank asks of it for a batch.

    Table ──▶ lookup(keys) ──▶ pull ──▶ wait ──▶ push ──▶ wait

Rows live in the engine. ``include/gorovod.h`` describes the calls.
"""

from __future__ import annotations

import ctypes
import math
import numbers
import os
import threading
import weakref
from typing import Any, Callable, Iterator, Optional, Union

from horovod.common import _arguments, _cells, _lib, _operations, basics

Rate = Union[float, Callable[[int], float]]

_LOOKS = 32  # GOROVOD_LOOKS
_UINT8 = 0  # GOROVOD_UINT8
_MOST_COPIED = 64 << 20  # bytes of weights in a part of the rows, unless one slot has more
_SLOTS = 4096  # GOROVOD_TABLE_SLOTS
_UNKNOWN = -(1 << 63)  # GOROVOD_TABLE_UNKNOWN

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
        ("number", ctypes.c_int64),
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

    In an elastic job a state makes it, in each world anew: see :mod:`horovod.common._committed_tables`. ``number`` is
    the library's, the same in all worlds.

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
        waits = _lib.load().gorovod_elastic() != _lib.NOT_ELASTIC
        if waits and process_set != 0:
            raise NotImplementedError("in an elastic job a sparse table is one of all ranks: leave process_set out")
        if waits and not _lib.load().gorovod_checkpoint_due(-1, 0):
            raise ValueError(
                f"in an elastic job commits save the rows of sparse table {name!r}, whose ranks may die: set "
                "GOROVOD_CHECKPOINT_DIR to a directory that all hosts share"
            )
        described = _Description(size=ctypes.sizeof(_Description), process_set=process_set)
        self.name, self.dim, self.num_embeddings = name, _integer(dim, "dim"), num_embeddings
        self.process_set = process_set
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
        self._described = described
        self.number = described.number = int(_lib.load().gorovod_table_reserve())
        _known[self.number] = self
        self.attached = False  # whether the table is in a world that has not ended, as far as this object knows
        self.world = 0  # how often the table has been made
        self.kept = 0  # the pushes of the rows that are on a disk
        if not waits:
            self.attach()

    def attach(self) -> None:
        """Make the table in this world, without rows. All members call it. Blocks until they have."""
        if self.fixed_rate is not None:  # which a program may have set
            self._described.rate = self.rate()
        meet(self.name, self._described.process_set)
        status = _lib.load().gorovod_table_create(ctypes.byref(self._described), ctypes.c_int64())
        if status != _lib.OK:
            raise _lib.error(status)
        self.attached = True
        self.world, self.pushes, self.kept = self.world + 1, 0, 0

    def detach(self) -> None:
        """The world has ended. The table has its pushes, and no rows."""
        self.kept = self.pushed()
        self.attached = False

    @property
    def fixed_rate(self) -> Optional[float]:
        """The learning rate if it is a number, which a state gives to new ranks; None for a function."""
        return None if callable(self.lr) else self.lr

    @fixed_rate.setter
    def fixed_rate(self, rate: float) -> None:
        self.lr = rate

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
        return max(0, int(_lib.load().gorovod_table_rows(self.number))) if self.attached else 0

    def pushed(self) -> int:
        """How many pushes the table has had on this rank, those before its last load among them."""
        return max(0, int(_lib.load().gorovod_table_pushes(self.number))) if self.attached else self.kept

    def save(self, directory: Any) -> None:
        """Save the rows to a directory that all hosts share. All members call it between two pushes. Blocks.

        Raises OSError, on all ranks, if a rank cannot write its file.
        """
        self._use_files(_lib.load().gorovod_table_save, _path(directory))

    def load(self, directory: Any) -> None:
        """Replace the rows by those of a save. All members call it while no pull or push is in progress. Blocks.

        Raises ValueError for a save of another table, and OSError for a damaged one, on all ranks.
        """
        self._use_files(_lib.load().gorovod_table_load, _path(directory))
        self.pushes = self.kept

    def commit(self, commit: int, part: int) -> None:
        """Save the rows for a commit, as :meth:`save`."""
        self._use_files(_lib.load().gorovod_table_commit, commit, part)

    def restore(self, commit: int, part: int) -> None:
        """Replace the rows by those of :meth:`commit`, as :meth:`load`."""
        self._use_files(_lib.load().gorovod_table_restore, commit, part)
        self.pushes = self.kept

    def _use_files(self, call: Callable[..., int], *arguments: Any) -> None:
        self.check_attached()
        _uninterrupted(call, self.number, *arguments)
        self.kept = self.pushed()

    def check_attached(self) -> None:
        """RuntimeError if no world has the table."""
        if not self.attached:
            raise RuntimeError(
                f"in an elastic job sparse table {self.name!r} belongs to a state: pass it to one (tables=[...]), and "
                "use it in the function that hvd.elastic.run calls"
            )

    def copies(self, rows: int, make: Callable[[int], tuple[Any, int, int]]) -> Iterator[tuple[Any, int]]:
        """Copies of this rank's rows, in parts of at most ``rows`` rows, or one slot.

        ``make`` makes room for so many rows, and returns it with the addresses of the keys and the weights.
        """
        self.check_attached()
        rows = min(rows, max(1, _MOST_COPIED // (4 * self.dim)))
        slot, least = ctypes.c_int32(), rows
        while slot.value < _SLOTS:
            room, keys, weights = make(least)
            n = int(_lib.load().gorovod_table_copy(self.number, slot, least, keys, weights))
            if n == _UNKNOWN:
                raise _lib.error(_lib.INVALID_ARGUMENT)
            least = max(rows, -n)
            if n > 0:
                yield room, n

    def lookup(self, keys: int, count: int, index: int, padding: Optional[int] = None) -> Lookup:
        """The lookup of ``count`` int64 keys at an address. Their places among the distinct ones go to ``index``."""
        self.check_attached()
        return Lookup(self, keys, count, index, padding)

    def __deepcopy__(self, memo: Any) -> Table:
        return self  # the rows are the engine's; a copy of a model uses the same

    def __reduce__(self) -> Any:
        raise TypeError(f"sparse table {self.name!r} cannot be pickled: its rows are divided among the ranks")


class Lookup:
    """What this rank asks of a table for a batch. ``distinct`` is the number of distinct keys, without the padding."""

    def __init__(self, table: Table, keys: int, count: int, index: int, padding: Optional[int]) -> None:
        distinct, lookup = ctypes.c_int64(), ctypes.c_int64()
        none = None if padding is None else ctypes.byref(ctypes.c_int64(padding))
        status = _lib.load().gorovod_lookup(table.number, keys, count, none, index, distinct, lookup)
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


# The tables by their numbers, while somebody has them.
_known: weakref.WeakValueDictionary[int, Table] = weakref.WeakValueDictionary()


def of_number(number: int) -> Optional[Table]:
    """The table of a number, if somebody has it."""
    return _known.get(number)


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


def _uninterrupted(call: Callable[..., int], *arguments: Any) -> None:
    """Make a call that blocks for long, in a thread of its own, so that Ctrl-C interrupts the wait for it."""
    failed: list[Exception] = []

    def run() -> None:
        status = call(*arguments)
        if status != _lib.OK:
            failed.append(_lib.error(status))  # the reason belongs to this thread

    thread = threading.Thread(target=run, name="horovod table file", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_lib.WAIT_SLICE_MS / 1000)
    if failed:
        raise failed[0]


def _path(directory: Any) -> bytes:
    path = os.fsencode(directory)
    if not path or b"\0" in path:
        raise ValueError(f"the directory of a sparse table cannot be named {directory!r}")
    return path


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
