"""Saves of embeddings whose rows are divided among the ranks, and what their state_dict says instead of rows."""

from __future__ import annotations

import os
import warnings
from typing import Any, Iterator, Optional, Union

import torch

from horovod.common import _tables
from horovod.common._record_batches import record_batches


class _Saved(torch.nn.Module):
    """The part of a module with a table that saves its rows."""

    dim: int
    _table: _tables.Table
    _training: Any  # how the table is trained
    _ahead: Any  # what prefetch has asked for; None: nothing
    _expected: Optional[int] = None  # the pushes of the state_dict that was loaded last

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write the rows to a directory, with the optimizer's numbers and the counters. All ranks call this. Blocks.

        Each rank writes a file with the rows that it has, and rank 0 then writes ``manifest``. A save is whole or
        absent: if the directory has one already, that stays until the new one is whole. Call it between two steps of
        training.

        Args:
            path: the directory, the same on all ranks, on storage that all hosts share. It is made if there is none.

        Raises:
            OSError: on all ranks, if one cannot write its file; the text names it. An earlier save is whole then.
            HorovodInternalError: the ranks name different directories or tables, or a rank is gone.

        Example:
            >>> import tempfile
            >>> layer = hvd.ShardedEmbedding(4)
            >>> _ = layer(torch.tensor([7, -1]))
            >>> layer.save(tempfile.gettempdir() + "/users")
        """
        self._training.wait_for_pull()
        self._table.save(path)

    def load(self, path: Union[str, os.PathLike[str]]) -> None:
        """Replace the rows by those of a :meth:`save` of any number of ranks. All ranks call this. Blocks.

        The table must have been made with the same arguments, ``name`` and ``seed`` among them. Only ``lr`` and the
        rules of eviction may differ, and ``num_embeddings`` may be larger. A function ``lr`` goes on with the number of
        pushes at the save. Files are never unpickled.

        Args:
            path: the directory, the same on all ranks.

        Raises:
            ValueError: on all ranks, if the save is of another table; the text says in what it differs. Or rows have
                been prefetched, and forward has not been called.
            OSError: on all ranks, if there is no save, or if it is damaged. The rows are those before.
            HorovodInternalError: the ranks name different directories or tables, or a rank is gone.

        Example:
            >>> import tempfile
            >>> path = tempfile.gettempdir() + "/films"
            >>> layer = hvd.ShardedEmbedding(4, optimizer="sgd", lr=1.0)
            >>> trained = layer(torch.tensor([7]))
            >>> layer.save(path)
            >>> layer(torch.tensor([7])).sum().backward()
            >>> layer.load(path)
            >>> torch.equal(layer(torch.tensor([7])), trained)
            True
        """
        if self._prefetched() is not None:
            raise ValueError("prefetch was called; call forward with its keys before load")
        self._training.begin_pull()
        self._table.load(path)

    def record_batches(self, rows: int = 65536) -> Iterator[Any]:
        """This rank's rows as record batches of Arrow, to be written to a file for serving. No rank waits for another.

        Each row is in one batch of one rank. If the table is trained meanwhile, some rows may be those before a step,
        and others those after it. Needs pyarrow.

        Args:
            rows: how many rows a batch has at most. In a very large table a batch may have more: those of one of the
                table's 4,096 slots.

        Returns:
            An iterator of ``pyarrow.RecordBatch`` with the columns ``key``, an int64, and ``row``, a list of ``dim``
            float32.

        Raises:
            ImportError: there is no pyarrow.
            ValueError: ``rows`` is below 1.

        Example:
            >>> layer = hvd.ShardedEmbedding(2, init="zeros")
            >>> _ = layer(torch.tensor([7]))
            >>> for batch in layer.record_batches():  # doctest: +SKIP
            ...     print(batch.to_pydict())
            {'key': [7], 'row': [[0.0, 0.0]]}
        """
        return record_batches(self._table, rows)

    def get_extra_state(self) -> torch.Tensor:
        """What ``state_dict`` has instead of the rows: the number of pushes, with a warning if they are not saved.

        Returns:
            An int64 tensor of one number.

        Example:
            >>> dict(hvd.ShardedEmbedding(4).state_dict())
            {'_extra_state': tensor([0])}
        """
        pushed = self._table.pushed()
        if pushed != self._table.kept:
            warnings.warn(
                f"state_dict() has no rows of sparse table {self._table.name!r}, which {pushed} pushes have trained. "
                "Call save(path) of its module, too, and do so first",
                stacklevel=3,
            )
        return torch.tensor([pushed], dtype=torch.int64, device="cpu")

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Note how many pushes the rows have had that belong to a ``state_dict``. :meth:`load` brings the rows.

        If nobody has brought them, the next call of forward says so.

        Args:
            state: the result of :meth:`get_extra_state`.

        Example:
            >>> layer = hvd.ShardedEmbedding(4)
            >>> layer.load_state_dict(layer.state_dict())
            <All keys matched successfully>
        """
        self._expected = int(state)

    def _prefetched(self) -> Any:
        if self._ahead is not None and self._ahead.world != self._table.world:
            self._ahead = None  # it was asked for in a world that has ended
        return self._ahead

    def _check_rows(self) -> None:
        """Before rows are asked for: they must be those of the state_dict that was loaded."""
        expected, self._expected = self._expected, None
        if expected is None:
            return
        pushed = self._table.pushed()
        if pushed == expected:
            return
        what = (
            f"the state_dict that was loaded belongs to rows of sparse table {self._table.name!r} after {expected} "
            f"pushes, and the table has had {pushed}. Call load(path) of its module, too"
        )
        if pushed == 0:
            self._expected = expected
            raise RuntimeError(what)
        warnings.warn(what, stacklevel=5)
