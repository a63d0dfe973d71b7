"""The sparse tables of a program, by their handles."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple, Optional

from horovod.common import _lib, _tables, basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow.mpi_ops import _set_id
from horovod.tensorflow.sparse._optimizers import Optimizer


class _Group(NamedTuple):
    """The table of an ``embedding_group``."""

    table: _tables.Table
    options: dict[str, Any]


# A handle is a number, so this keeps the tables alive.
_alive: list[_tables.Table] = []
_groups: dict[str, _Group] = {}


def _forget() -> None:
    """The library ends its tables with the job. In an elastic job they go on in the next world."""
    if _lib.load().gorovod_elastic() == _lib.NOT_ELASTIC:
        _alive.clear()
        _groups.clear()


basics.before_init.append(_forget)


def create_sparse_table(
    opt: Optimizer,
    name: str = "",
    dimension: int = 8,
    use_cvm: bool = False,
    embedding_group: str = "",
    process_set: ProcessSet = global_process_set,
) -> int:
    """Make a table. All ranks of ``process_set`` call this with equal arguments, outside of graphs. Blocks.

    Rows come into being at their first pull, with numbers that depend on the table's name and the key alone.

    Args:
        opt: :class:`AdaGrad`, :class:`Adam` or :class:`Ftrl`.
        name: the table's, one of its own. Without it, the tables are numbered as they are made.
        dimension: the numbers of a row.
        use_cvm: must be False.
        embedding_group: calls with the same group return the same table.
        process_set: the ranks that have the rows.

    Returns:
        The table's handle, a number.

    Raises:
        ValueError, TypeError: arguments are bad, or the group has a table with others.
        HorovodInternalError: another rank has other arguments: the text names them.
        NotImplementedError: ``use_cvm``; or the job is elastic, and ``process_set`` is not that of all ranks.

    Example:
        >>> handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), "words", dimension=4)
    """
    if not isinstance(opt, Optimizer):
        raise TypeError(f"opt must be an AdaGrad, an Adam or an Ftrl of horovod.tensorflow.sparse, not {opt!r}")
    if use_cvm:
        raise NotImplementedError("use_cvm=True is not possible: the table keeps no statistics of shows and clicks")
    if isinstance(dimension, bool) or not isinstance(dimension, numbers.Integral) or dimension < 1:
        raise ValueError(f"dimension must be an int above 0, not {dimension!r}")
    options = {"dim": int(dimension), **opt._options(int(dimension)), "process_set": _set_id(process_set)}
    if embedding_group and embedding_group in _groups:
        group = _groups[embedding_group]
        if _comparable(options) != _comparable(group.options):
            raise ValueError(
                f"embedding_group {embedding_group!r} has table {group.table.name!r} with "
                f"{_comparable(group.options)}, not with {_comparable(options)}"
            )
        return group.table.number
    table = _TableOfOptimizer(
        name or _tables.unnamed(options["process_set"]), num_embeddings=None, seed=0, optimizer_of=opt, **options
    )
    _alive.append(table)
    if embedding_group:
        _groups[embedding_group] = _Group(table, options)
    return table.number


def _comparable(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "lr"}


class _TableOfOptimizer(_tables.Table):
    """A table whose learning rate is that of an :class:`Optimizer`."""

    def __init__(self, name: str, optimizer_of: Optimizer, **options: Any) -> None:
        self._opt = optimizer_of
        super().__init__(name, **options)

    @property
    def fixed_rate(self) -> Optional[float]:
        rate = self._opt.learning_rate
        return None if callable(rate) else float(rate)

    @fixed_rate.setter
    def fixed_rate(self, rate: float) -> None:
        self._opt.learning_rate = rate


def make(name: str, **options: Any) -> _tables.Table:
    """A new table, which lives as long as the job. The options are those of :class:`_tables.Table`."""
    table = _tables.Table(name, **options)
    _alive.append(table)
    return table


def table_of(handle: Any) -> _tables.Table:
    """The table of a handle. TypeError or ValueError if there is none."""
    if isinstance(handle, bool) or not isinstance(handle, numbers.Integral):
        raise TypeError(f"table_handle must be the result of create_sparse_table, not {handle!r}")
    table = _tables.of_number(int(handle))
    if table is None:
        raise ValueError(f"no table has the handle {handle}: make it after hvd.init(), with create_sparse_table")
    return table
