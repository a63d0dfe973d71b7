"""The sparse tables of an elastic state: rows belong to the world in which they are, so commits save them to a disk.

sync                make the tables in this world, with the rows of rank 0's state
commit              save the rows, before the state remembers the rest
keep                save the rows between two commits, because the world ends although nothing has failed
restore, detach     the state goes back to the last commit; the world has ended
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence

from horovod.common import _lib, _tables
from horovod.common._tables import Table


class Save(NamedTuple):
    """Which save of the tables it is: see ``gorovod_table_commit``."""

    commit: int
    part: int


class StateWithRows(NamedTuple):
    """What a checkpoint has of a state with tables."""

    rows: Optional[Save]
    state: Any


class CommittedTables:
    """Which save has the rows that belong to a state, on each rank the same. ``tables`` are the same in all calls."""

    def __init__(self) -> None:
        self.saved: Optional[Save] = None  # the rows of what the state remembers; None: new ones
        self._present: Optional[Save] = None  # those with which the next world begins

    def commit(self, tables: Sequence[Table], commit: int) -> None:
        """Save the rows for a commit, which :meth:`remember` ends. All ranks call this. Blocks."""
        if tables and _are_kept():
            self._save(tables, Save(commit, 0))

    def keep(self, tables: Sequence[Table], commit: int) -> None:
        """Save the rows after a commit if they have changed since. All ranks call this. Blocks."""
        if _are_kept() and any(table.pushed() != table.kept for table in tables):
            at = self._present
            self._save(tables, Save(commit, at.part + 1 if at is not None and at.commit == commit else 1))

    def _save(self, tables: Sequence[Table], save: Save) -> None:
        for table in tables:
            table.commit(*save)
        self._present = save

    def remember(self) -> None:
        """The state remembers what belongs to the rows of the last save, or to those from :meth:`sync`."""
        self.saved = self._present

    def restore(self) -> None:
        """The state is again what it remembers."""
        self._present = self.saved

    def take(self, saved: Optional[Save]) -> None:
        """The state is one from a disk."""
        self.saved = self._present = saved

    def sync(self, tables: Sequence[Table], bcast_object: Callable[[Any], Any]) -> None:
        """Make the tables in this world, with the rows of rank 0's state. All ranks call this. Blocks."""
        if not tables:
            return
        own = [table.name for table in tables], self._present, [t.fixed_rate for t in tables]
        names, self._present, rates = bcast_object(own)
        if names != own[0]:
            raise ValueError(f"the state of rank 0 has the sparse tables {names}, that of this rank {own[0]}")
        for table, rate in zip(tables, rates):
            if not table.attached and table.pushed() and not _are_kept():
                raise RuntimeError(
                    f"the rows of sparse table {table.name!r} are lost with the ranks' connections. Set "
                    "GOROVOD_CHECKPOINT_DIR to a directory that all hosts share, so that commits save them"
                )
            if rate is not None:
                table.fixed_rate = rate
            if not table.attached:
                table.attach()
            if self._present is not None:
                table.restore(*self._present)

    def detach(self, tables: Sequence[Table]) -> None:
        """The world of the tables has ended."""
        for table in tables:
            table.detach()


def _are_kept() -> bool:
    return bool(_lib.load().gorovod_checkpoint_due(-1, 0))


class StateWithTables:
    """The part of a state of TensorFlow and Keras that knows sparse tables."""

    _given: Sequence[Any] = ()  # as the program has given them
    _listed: Sequence[Table] = ()  # which keeps them alive

    @property
    def tables(self) -> Sequence[Any]:
        """The layers with sparse tables, and the tables' handles, that a commit saves besides those of the model."""
        return self._given

    @tables.setter
    def tables(self, tables: Sequence[Any]) -> None:
        self._listed = [_table(one) for one in tables]
        self._given = tables

    def _tables_of(self, layers: Iterable[Any]) -> list[Table]:
        """The tables of layers, and those that the program has given: each once, in this order."""
        found = [layer._table for layer in layers if isinstance(getattr(layer, "_table", None), Table)]
        return list({table.name: table for table in (*found, *self._listed)}.values())


def _table(given: Any) -> Table:
    table = getattr(given, "_table", None)
    if isinstance(given, int) and not isinstance(given, bool):
        table = _tables.of_number(given)
    if not isinstance(table, Table):
        raise TypeError(f"tables has {given!r}, which is no layer with a sparse table, and no handle of one")
    return table
