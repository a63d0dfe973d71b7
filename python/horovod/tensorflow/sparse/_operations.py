"""Pulls and pushes of sparse tables as TensorFlow operations. The kernels are in ``shim/tensorflow/tables.c``.

A pull depends on an anchor, a variable that nothing else uses. So a tape that is recording finds a way from the rows
to a variable, and asks for the pull's gradient, which is the push. In a ``tf.function`` the pulls and pushes of a table
run in the order in which they stand there.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence

import tensorflow as tf
from tensorflow.python.framework import ops

from horovod.common import _tables
from horovod.tensorflow import _library

_native = _library.load()

# For each graph of a function, the name of the last operation of each table.
_last: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=None)
def _anchor() -> tf.Variable:
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable(0.0, name="horovod_tables", trainable=True)


def pull(
    table: _tables.Table,
    keys: Sequence[tf.Tensor],
    limits: Sequence[Any],
    looks: bool,
    trains: bool,
    padding: Optional[int] = None,
    average: bool = False,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The rows of the distinct keys of each column, in the order of their first appearance, and each key's place there.

    Args:
        table: the table.
        keys: int64 of any shape, a tensor for each column.
        limits: for each column the shape of a variable that is to take the rows, or an empty list. If the rows do not
            fit, the pull fails on all ranks.
        looks: make no rows: new ones read as they would be made.
        trains: the gradients of the rows are pushed.
        padding: a key whose row has zeros, after a column's other rows.
        average: divide the gradients by the number of ranks when the push runs: in an elastic job it may change.
    """
    check_attached(table)
    anchor = _anchor().read_value() if trains else tf.constant(0.0)
    with _in_order(table.number) as done:
        rows, index = _native.horovod_table_pull(
            anchor,
            list(keys),
            [tf.convert_to_tensor(limit, tf.int64) for limit in limits],
            table=table.number,
            looks=looks,
            average=average,
            process_set=table.process_set,
            padded=padding is not None,
            padding=padding or 0,
        )
        done(rows[0])
    for matrix in rows:
        matrix.set_shape([None, table.dim])
    return rows, index


def check_attached(table: _tables.Table) -> None:
    """RuntimeError if no world has the table of an operation that runs now. In a graph, the operation itself fails."""
    if tf.executing_eagerly():
        table.check_attached()


def push(number: int, keys: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor], padding: Optional[int] = None) -> Any:
    """Change the rows of a table's keys. ``gradients``, float32, are of the rows that a pull of the keys returns.

    Returns the operation in a graph, None in eager mode.
    """
    with _in_order(number) as done:
        pushed = _native.horovod_table_push(
            list(keys), list(gradients), table=number, padded=padding is not None, padding=padding or 0
        )
        done(pushed)
    return pushed


@contextlib.contextmanager
def _in_order(number: int) -> Iterator[Callable[[Any], None]]:
    """Make an operation of a table that runs after the one before, in a function's graph. Pass it to what this yields.

    TensorFlow has the same order for stateful operations, but not in the graphs that it makes for the gradients of
    functions. In graphs with sessions a program may run what it asks for alone.
    """
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    if graph is None or not graph.building_function:
        yield lambda made: None
        return
    names = _last.setdefault(graph, {})
    before = names.get(number)

    def done(made: Any) -> None:
        names[number] = getattr(made, "op", made).name

    with tf.control_dependencies([] if before is None else [graph.get_operation_by_name(before)]):
        yield done


def dense(gradient: Any, rows: Any) -> tf.Tensor:
    """A gradient, which may be sparse or None, for each of ``rows`` rows. Each run adds it up in the same order."""
    if isinstance(gradient, tf.IndexedSlices):
        with tf.device("CPU:0"):
            return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
    return tf.convert_to_tensor(gradient)


@ops.RegisterGradient("HorovodTablePull")
def _pull_gradient(op: Any, *grads: Any) -> list[Any]:
    columns, gradients = op.get_attr("N"), []
    factor = None
    if op.get_attr("average"):
        factor = 1.0 / tf.cast(_native.horovod_size(process_set_id=op.get_attr("process_set")), tf.float32)
    for rows, gradient in zip(op.outputs[:columns], grads):
        gradient = tf.zeros_like(rows) if gradient is None else dense(gradient, tf.shape(rows)[0])
        gradient = tf.cast(gradient, tf.float32)
        gradients.append(gradient if factor is None else gradient * factor)
    keys, padding = op.inputs[1 : 1 + columns], op.get_attr("padding") if op.get_attr("padded") else None
    pushed = push(op.get_attr("table"), keys, gradients, padding)
    with tf.control_dependencies([] if pushed is None else [pushed]):
        return [tf.zeros([]), *[None] * (2 * columns)]


ops.NotDifferentiable("HorovodTablePush")
