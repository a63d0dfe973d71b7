"""The data sets of this process that are in use, each with its index in its store."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any, Callable, Iterator


class Key:
    """What two trainings must have in common to share a data set."""

    def __init__(self, df: Any, paths: tuple[str, str], how: tuple[Any, ...]) -> None:
        self._df = df
        self._paths = paths
        self._how = how

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key) or (self._paths, self._how) != (other._paths, other._how):
            return False
        return self._df is other._df or bool(self._df.sameSemantics(other._df))

    __hash__ = None  # type: ignore[assignment]  # two data frames with the same rows have no hash in common


@dataclasses.dataclass
class _Entry:
    key: Key
    users: int = 1
    ready: threading.Event = dataclasses.field(default_factory=threading.Event)
    properties: Any = None  # None after ready: it could not be written


_lock = threading.Lock()
_entries: dict[int, _Entry] = {}


@contextlib.contextmanager
def use(key: Key, write: Callable[[int], Any]) -> Iterator[int]:
    """The index of a data set, valid until the context ends.

    The first user of a key takes the lowest free index, and writes the data set; the others wait until it is written.
    """
    while True:
        with _lock:
            idx = next((i for i, entry in _entries.items() if entry.key == key), None)
            mine = idx is None
            if idx is None:
                idx = next(i for i in range(len(_entries) + 1) if i not in _entries)
                entry = _entries[idx] = _Entry(key)
            else:
                entry = _entries[idx]
                entry.users += 1
        try:
            if mine:
                _write(entry, idx, write)
            else:
                entry.ready.wait()
            if entry.properties is not None:
                yield idx
                return
        finally:
            _leave(idx, entry)


def _write(entry: _Entry, idx: int, write: Callable[[int], Any]) -> None:
    try:
        entry.properties = write(idx)
    finally:
        entry.ready.set()


def _leave(idx: int, entry: _Entry) -> None:
    with _lock:
        entry.users -= 1
        if not entry.users and _entries.get(idx) is entry:
            del _entries[idx]


def properties(idx: int) -> Any:
    """What the writing of the data set has returned. Raises KeyError if nobody uses it."""
    with _lock:
        if idx not in _entries or _entries[idx].properties is None:
            raise KeyError(f"no data set {idx} is in use: ask within the context of prepare_data")
        return _entries[idx].properties


def clear() -> None:
    """Forget all data sets."""
    with _lock:
        _entries.clear()
