"""tensornet's operations on sparse tables: they work eagerly, in ``tf.function`` and in graphs with sessions.

All ranks of the table's process set run equally many pulls and pushes of a table, one after the other. In a graph with
sessions that is up to the program, by ``tf.control_dependencies``.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from horovod.tensorflow.sparse import _operations
from horovod.tensorflow.sparse._registry import table_of


def sparse_table_pull(
    resources: Sequence[Any], values: Sequence[Any], table_handle: int, name: Optional[str] = None
) -> list[tf.Tensor]:
    """Write the rows of each column's distinct keys to its variable, and return each key's row there.

    The first row is that of the first key, the second that of the next key that differs, and so on. Other rows of the
    variable stay as they are.

    Args:
        resources: for each column a float32 variable of the shape [rows, dimension], or its handle.
        values: for each column the keys: int64 of any shape.
        table_handle: the table's, from :func:`create_sparse_table`.
        name: of the operations in a graph.

    Returns:
        For each column an int64 tensor with the shape of its keys: the numbers of their rows.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.InvalidArgumentError: a column has more distinct keys than its variable has rows, or a variable has
            another dimension than the table. The text names the column, counted from 0. The other ranks get a
            FailedPreconditionError with the same text.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), dimension=4)
        >>> batch = tf.Variable(tf.zeros([100, 4]))
        >>> keys = tf.constant([10**12, -7, 10**12])
        >>> [index] = sparse.gen_sparse_table_ops.sparse_table_pull([batch.handle], [keys], handle)
        >>> index.numpy().tolist()
        [0, 1, 0]
    """
    table = table_of(table_handle)
    keys = _keys(values)
    handles = [_handle(resource, i) for i, resource in enumerate(resources)]
    if len(handles) != len(keys):
        raise ValueError(f"{len(handles)} resources for {len(keys)} columns of values: give as many")
    with tf.name_scope(name or "sparse_table_pull"):
        limits = [tf.raw_ops.VariableShape(input=handle, out_type=tf.int64) for handle in handles]
        rows, index = _operations.pull(table, keys, limits, looks=False, trains=False)
        assigned = [_assign(handle, matrix) for handle, matrix in zip(handles, rows)]
        with tf.control_dependencies([operation for operation in assigned if operation is not None]):
            return [tf.identity(places) for places in index]


def sparse_table_push(
    values: Sequence[Any],
    grads: Sequence[Any],
    feature_labels: Sequence[Any],
    table_handle: int,
    name: Optional[str] = None,
) -> Any:
    """Change rows by their gradients, at the ranks that have them. The gradients of columns and ranks are added.

    Args:
        values: for each column the keys, as in the pull.
        grads: for each column its gradients: float32 of the shape [distinct keys, dimension], in the order of the rows
            that the pull has written. Or ``tf.IndexedSlices``, as the gradient of the pull's variable is, whose indices
            are from the pull.
        feature_labels: for each column a label for each key. The table keeps no statistics of labels.
        table_handle: the table's, from :func:`create_sparse_table`.
        name: of the operation in a graph.

    Returns:
        None in eager mode, in a graph the operation.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.InvalidArgumentError: gradients have another shape. The text names the column, counted from 0. The
            other ranks get a FailedPreconditionError with the same text.
        tf.errors.FailedPreconditionError: ranks have different learning rates.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), dimension=4)
        >>> batch, keys = tf.Variable(tf.zeros([100, 4])), tf.constant([10**12, -7, 10**12])
        >>> [index] = sparse.gen_sparse_table_ops.sparse_table_pull([batch], [keys], handle)
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(tf.nn.embedding_lookup(batch, index))
        >>> gradient, labels = tape.gradient(loss, batch), tf.zeros_like(keys)
        >>> sparse.gen_sparse_table_ops.sparse_table_push([keys], [gradient], [labels], handle)
    """
    table = table_of(table_handle)
    _operations.check_attached(table)
    keys = _keys(values)
    for what, columns in (("grads", grads), ("feature_labels", feature_labels)):
        if len(columns) != len(keys):
            raise ValueError(f"{len(columns)} {what} for {len(keys)} columns of values: give as many")
    with tf.name_scope(name or "sparse_table_push"):
        gradients = [_gradient(grad, own, i) for i, (grad, own) in enumerate(zip(grads, keys))]
        return _operations.push(table.number, keys, gradients)


def _keys(values: Sequence[Any]) -> list[tf.Tensor]:
    if not isinstance(values, (list, tuple)) or not values:
        raise TypeError(f"values must be a list with the keys of each column, not {values!r}")
    keys = [tf.convert_to_tensor(column) for column in values]
    for i, column in enumerate(keys):
        if column.dtype != tf.int64:
            raise TypeError(f"column {i} has keys of {column.dtype.name}: they must be int64")
    return keys


def _handle(resource: Any, column: int) -> Any:
    dtype = getattr(resource, "dtype", None)
    handle = getattr(resource, "handle", resource)
    if getattr(handle, "dtype", None) != tf.resource:
        raise TypeError(f"column {column} needs a resource variable or its handle, not {resource!r}")
    if handle is not resource and dtype != tf.float32:
        raise TypeError(f"column {column} has a variable of {tf.as_dtype(dtype).name}: it must be float32")
    return handle


def _assign(handle: Any, rows: tf.Tensor) -> Any:
    """Write rows to the first rows of a variable."""
    return tf.raw_ops.ResourceStridedSliceAssign(ref=handle, begin=[0], end=tf.shape(rows)[:1], strides=[1], value=rows)


def _gradient(gradient: Any, keys: tf.Tensor, column: int) -> tf.Tensor:
    if not isinstance(gradient, tf.IndexedSlices):
        gradient = tf.convert_to_tensor(gradient)
    if gradient.dtype != tf.float32:
        raise TypeError(f"column {column} has gradients of {gradient.dtype.name}: they must be float32, see tf.cast")
    if isinstance(gradient, tf.IndexedSlices):
        return _operations.dense(gradient, tf.size(tf.unique(tf.reshape(keys, [-1])).y))
    return gradient
