"""Saves of sparse tables: tensornet's functions, and the part of the layer that has the same rows."""

from __future__ import annotations

import os
import urllib.parse
import warnings
from typing import Any, Iterator, Union

import numpy as np
import tensorflow as tf

from horovod.common import _tables
from horovod.common._record_batches import record_batches
from horovod.tensorflow.sparse._registry import table_of

_Path = Union[str, "os.PathLike[str]"]


def save_sparse_table(handle: int, path: _Path, mode: str = "bin") -> None:
    """Write a table's rows, with the optimizer's numbers and the counters. All its ranks call this. Blocks.

    The files are in ``<path>/sparse_table/<name>``, so tables of different names may have the same ``path``. A save is
    whole or absent: an earlier one stays until the new one is whole. Call it between two pushes.

    ``hvd.ShardedEmbedding.load`` of PyTorch and Keras, ``Table.Load`` in Go and ``gorovod_table_load`` in C also read
    that directory, if their table is described alike.

    Args:
        handle: the table's, from :func:`create_sparse_table`.
        path: a directory, the same on all ranks, on storage that all hosts share. It is made if there is none.
        mode: must be "bin".

    Raises:
        OSError: on all ranks, if one cannot write its file; the text names it. An earlier save is whole then.
        HorovodInternalError: the ranks name different directories or tables, or a rank is gone.
        NotImplementedError: ``mode`` is "txt".
        RuntimeError: a ``tf.function`` calls this: it would save while TensorFlow traces the function, and never again.
        TypeError, ValueError: an argument is wrong.

    Example:
        >>> import tempfile
        >>> handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), "saved", dimension=4)
        >>> sparse.save_sparse_table(handle, tempfile.gettempdir(), "bin")
    """
    table = table_of(handle)
    _check_mode(mode)
    _outside_of_functions("save_sparse_table")
    table.save(_directory(table, path))


def load_sparse_table(handle: int, path: _Path, mode: str = "bin") -> None:
    """Replace a table's rows by those that :func:`save_sparse_table` has written. All its ranks call this. Blocks.

    The job may have another number of ranks than the one that saved. The table must have been made with the same name
    and arguments; only the learning rate may differ. If it is a function, it goes on with the number of pushes at the
    save. Files are never unpickled.

    Args:
        handle: the table's, from :func:`create_sparse_table`.
        path: the directory that was given to :func:`save_sparse_table`.
        mode: must be "bin".

    Raises:
        ValueError: on all ranks, if the save is of another table; the text says in what it differs.
        OSError: on all ranks, if there is no save, or if it is damaged. The rows are those before.
        HorovodInternalError: the ranks name different directories or tables, or a rank is gone.
        NotImplementedError: ``mode`` is "txt".
        RuntimeError: a ``tf.function`` calls this.
        TypeError: an argument is wrong.

    Example:
        >>> import tempfile
        >>> handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), "loaded", dimension=4)
        >>> sparse.save_sparse_table(handle, tempfile.gettempdir(), "bin")
        >>> sparse.load_sparse_table(handle, tempfile.gettempdir(), "bin")
    """
    table = table_of(handle)
    _check_mode(mode)
    _outside_of_functions("load_sparse_table")
    table.load(_directory(table, path))


def _check_mode(mode: Any) -> None:
    if mode == "txt":
        raise NotImplementedError('mode="txt" is not possible: use "bin", which all ranks and front ends can read')
    if mode != "bin":
        raise ValueError(f'mode must be "bin", not {mode!r}')


def _outside_of_functions(what: str) -> None:
    if tf.inside_function():
        raise RuntimeError(f"{what} cannot be part of a tf.function: call it between two steps")


def _directory(table: _tables.Table, path: _Path) -> bytes:
    name = urllib.parse.quote(table.name, safe=" ")
    if name.strip(".") == "":
        name = name.replace(".", "%2E")
    return os.path.join(os.fsencode(path), b"sparse_table", name.encode())


class Saved:
    """The part of a layer of Keras that saves the rows of its table."""

    _table: _tables.Table

    def save(self, path: _Path) -> None:
        """Write the rows to a directory, with the optimizer's numbers and the counters. All ranks call this. Blocks.

        Each rank writes a file with the rows that it has, and rank 0 then writes ``manifest``. A save is whole or
        absent: if the directory has one already, that stays until the new one is whole. Call it between two steps of
        training. The module of the same name for PyTorch reads it, too.

        Args:
            path: the directory, the same on all ranks, on storage that all hosts share. It is made if there is none.

        Raises:
            OSError: on all ranks, if one cannot write its file; the text names it. An earlier save is whole then.
            HorovodInternalError: the ranks name different directories or tables, or a rank is gone.
            RuntimeError: a ``tf.function`` calls this.

        Example:
            >>> import tempfile
            >>> layer = sparse.ShardedEmbedding(4)
            >>> _ = layer(tf.constant([7, -1]), training=True)
            >>> layer.save(tempfile.gettempdir() + "/users")
        """
        _outside_of_functions("save")
        self._table.save(path)

    def load(self, path: _Path) -> None:
        """Replace the rows by those of a :meth:`save` of any number of ranks. All ranks call this. Blocks.

        The table must have been made with the same arguments, ``table_name`` and ``seed`` among them. Only ``lr`` and
        the rules of eviction may differ, and ``num_embeddings`` may be larger. A function ``lr`` goes on with the
        number of pushes at the save. Files are never unpickled.

        Args:
            path: the directory, the same on all ranks.

        Raises:
            ValueError: on all ranks, if the save is of another table; the text says in what it differs.
            OSError: on all ranks, if there is no save, or if it is damaged. The rows are those before.
            HorovodInternalError: the ranks name different directories or tables, or a rank is gone.
            RuntimeError: a ``tf.function`` calls this.

        Example:
            >>> import tempfile
            >>> path = tempfile.gettempdir() + "/films"
            >>> layer = sparse.ShardedEmbedding(4)
            >>> rows = layer(tf.constant([7]), training=True).numpy().tolist()
            >>> layer.save(path)
            >>> layer.load(path)
            >>> layer(tf.constant([7])).numpy().tolist() == rows
            True
        """
        _outside_of_functions("load")
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
            >>> layer = sparse.ShardedEmbedding(2, init="zeros")
            >>> _ = layer(tf.constant([7]), training=True)
            >>> for batch in layer.record_batches():  # doctest: +SKIP
            ...     print(batch.to_pydict())
            {'key': [7], 'row': [[0.0, 0.0]]}
        """
        return record_batches(self._table, rows)

    def save_own_variables(self, store: Any) -> None:
        """What Keras' files have instead of the rows: the number of pushes, with a warning if they are not saved.

        Args:
            store: Keras' part of the file for this layer.
        """
        pushed = self._table.pushed()
        if pushed != self._table.kept:
            warnings.warn(
                f"Keras' files have no rows of sparse table {self._table.name!r}, which {pushed} pushes have trained. "
                "Call save(path) of its layer, too, and do so first",
                stacklevel=2,
            )
        store["pushes"] = np.int64(pushed)

    def load_own_variables(self, store: Any) -> None:
        """Compare the rows with those of a Keras file by the number of pushes, and warn if they differ.

        Args:
            store: Keras' part of the file for this layer.
        """
        expected, pushed = int(store["pushes"][()]) if "pushes" in store else None, self._table.pushed()
        if expected is not None and pushed != expected:
            warnings.warn(
                f"the weights belong to rows of sparse table {self._table.name!r} after {expected} pushes, and the "
                f"table has had {pushed}. Call load(path) of its layer, too, and do so first",
                stacklevel=2,
            )
