"""Collectives for users: averages, compression and sparse tensors on top of :mod:`horovod.tensorflow.mpi_ops`."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import tensorflow as tf

from horovod.common import _arguments, _lib
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _short, mpi_ops
from horovod.tensorflow.compression import Compression, prepare
from horovod.tensorflow.mpi_ops import Adasum, Average, Sum


def _set_size(process_set: ProcessSet, dtype: tf.DType) -> tf.Tensor:
    """The number of ranks of ``process_set`` when the graph runs."""
    return tf.cast(mpi_ops.size_op(mpi_ops._set_id(process_set)), dtype)


def _check_adasum(process_set: ProcessSet) -> None:
    if process_set is not global_process_set and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")


def _allreduce_slices(
    slices: tf.IndexedSlices,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    name: Optional[str],
    process_set: ProcessSet,
    ignore_name_scope: bool,
) -> tf.IndexedSlices:
    """Rows of a sparse tensor: those of all ranks, one after the other. Rows with the same index add up."""
    if op not in (Average, Sum):
        raise NotImplementedError(
            "Sparse tensors (tf.IndexedSlices) can be reduced with Average and Sum only; to use another operation, "
            "convert them to dense ones: pass sparse_as_dense=True to DistributedOptimizer or DistributedGradientTape."
        )
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError(
            "prescale_factor and postscale_factor are not supported for tf.IndexedSlices; make them dense first."
        )
    with tf.name_scope((name or "allreduce_slices").replace(":", "_") if not tf.executing_eagerly() else "allreduce"):
        values = mpi_ops._allgather(
            slices.values, name and f"{name}.values", ignore_name_scope, process_set, adds_up=True
        )
        indices = mpi_ops.allgather(slices.indices, name and f"{name}.indices", ignore_name_scope, process_set)
    if op == Average:
        values = tf.math.divide(values, _set_size(process_set, values.dtype))
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduce ``tensor`` over the ranks of ``process_set``: the average, unless ``op`` says otherwise. Differentiable.

    Args:
        tensor: a tensor, variable, array or ``tf.IndexedSlices``; shape and dtype must be equal on all ranks, except
            the number of rows of the latter.
        average: deprecated form of ``op``: True is Average, False is Sum.
        device_dense: the device for the arithmetic around the communication; the communication runs on the CPU.
        device_sparse: the same for ``tf.IndexedSlices``.
        compression: how the tensor travels, see :class:`Compression`.
        op: Average (default), Sum, Min, Max, Product or, on floating-point tensors of all ranks, Adasum.
        prescale_factor: each element is multiplied by it before the reduction.
        postscale_factor: each element is multiplied by it after the reduction.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scope out of the operation's name.

    Returns:
        The result, the same on all ranks.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.
        NotImplementedError: impossible for Adasum or sparse tensors.

    Example:
        >>> hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Sum).numpy().tolist()
        [1.0, 2.0]
    """
    if average is None and compression is Compression.none and not device_dense:
        short = _short.allreduce(tensor, op, name, prescale_factor, postscale_factor, process_set)
        if short is not None:
            return short
    op = mpi_ops.check_reduce_op(mpi_ops.handle_average_backwards_compatibility(op, average))
    _arguments.compressor(compression)
    if isinstance(tensor, tf.IndexedSlices):
        with tf.device(device_sparse):
            return _allreduce_slices(
                tensor, op, prescale_factor, postscale_factor, name, process_set, ignore_name_scope
            )
    if op == Adasum:
        _check_adasum(process_set)
    with tf.device(device_dense):
        compressed, context, wire = prepare(compression, tf.convert_to_tensor(tensor), op)
        reduced = mpi_ops._allreduce(
            compressed,
            name=name,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
            wire=wire,
        )
        return compression.decompress(reduced, context)


Prepared = tuple[tf.Tensor, Any, int]  # as compression.prepare returns it


def _alike(tensors: Sequence[Prepared]) -> list[list[int]]:
    """Indices of ``tensors`` by dtype and wire, each in order: a native group has one dtype and one wire."""
    kinds: dict[tuple[tf.DType, int], list[int]] = {}
    for i, (tensor, _, wire) in enumerate(tensors):
        kinds.setdefault((tensor.dtype, wire), []).append(i)
    return list(kinds.values())


def _grouped(tensors: Sequence[Prepared], compression: Any, name: Optional[str], run: Any) -> list[Any]:
    """``run(tensors, wire, name)`` on tensors that are alike, then decompression; in the order of ``tensors``."""
    results: list[Any] = [None] * len(tensors)
    kinds = _alike(tensors)
    for kind in kinds:
        first, _, wire = tensors[kind[0]]
        own = name and (name if len(kinds) == 1 else f"{name}.{first.dtype.name}")
        for i, reduced in zip(kind, run([tensors[i][0] for i in kind], wire, own)):
            results[i] = compression.decompress(reduced, tensors[i][1])
    return results


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> list[Any]:
    """Reduce many tensors at once, each as :func:`allreduce`. Dense ones of a dtype start when all of them are ready.

    Args:
        tensors: a list of tensors; all ranks give as many, in the same order.
        average: deprecated form of ``op``: True is Average, False is Sum.
        device_dense: the device for the arithmetic around the communication; the communication runs on the CPU.
        device_sparse: the same for ``tf.IndexedSlices``.
        compression: how the tensor travels, see :class:`Compression`.
        op: Average (default), Sum, Min, Max, Product or, on floating-point tensors of all ranks, Adasum.
        prescale_factor: each element is multiplied by it before the reduction.
        postscale_factor: each element is multiplied by it after the reduction.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scope out of the operation's name.

    Returns:
        The list of the results.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> [t.numpy().tolist() for t in hvd.grouped_allreduce([tf.constant([1.0]), tf.constant([2.0])])]
        [[1.0], [2.0]]
    """
    tensors = _arguments.tensors(tensors)
    if not tensors:
        return []
    op = mpi_ops.check_reduce_op(mpi_ops.handle_average_backwards_compatibility(op, average))
    _arguments.compressor(compression)
    results: list[Any] = list(tensors)
    dense = [i for i, t in enumerate(tensors) if not isinstance(t, tf.IndexedSlices)]
    for i, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            results[i] = allreduce(
                tensor,
                device_sparse=device_sparse,
                op=op,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
                name=name and f"{name}.slices.{i}",
                process_set=process_set,
                ignore_name_scope=ignore_name_scope,
            )
    if dense and op == Adasum:
        _check_adasum(process_set)

    def run(part: list[Any], wire: int, own: Optional[str]) -> list[Any]:
        return mpi_ops._grouped_allreduce(
            part,
            name=own,
            op=op,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
            wire=wire,
        )

    with tf.device(device_dense):
        inputs = [prepare(compression, tf.convert_to_tensor(tensors[i]), op) for i in dense]
        for i, reduced in zip(dense, _grouped(inputs, compression, name, run)):
            results[i] = reduced
    return results


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce ``tensor`` over the ranks of ``process_set``, and give each rank its rows. Differentiable.

    Args:
        tensor: a tensor, variable or array with at least one dimension; shape and dtype must be equal on all ranks.
        device_dense: the device for the arithmetic around the communication; the communication runs on the CPU.
        compression: a compressor, which works before and after the operation.
        op: Average or Sum.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scope out of the operation's name.
        prescale_factor: each element is multiplied by it before the reduction.
        postscale_factor: each element is multiplied by it after the reduction.

    Returns:
        This rank's rows of the result; if they cannot be divided equally, the first ranks get one more.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> hvd.reducescatter(tf.constant([1.0, 2.0]), op=hvd.Sum).numpy().tolist()
        [1.0, 2.0]
    """
    mpi_ops.check_scatter_op(op)
    _arguments.compressor(compression)
    with tf.device(device_dense):
        compressed, context = compression.compress(tf.convert_to_tensor(tensor))
        reduced = mpi_ops._reducescatter(
            compressed, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor
        )
        return compression.decompress(reduced, context)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduce and deal out many tensors at once, each as :func:`reducescatter`; those of a dtype together.

    Args:
        tensors: a list of tensors; all ranks give as many, in the same order.
        device_dense: the device for the arithmetic around the communication; the communication runs on the CPU.
        compression: a compressor, which works before and after the operation.
        op: Average or Sum.
        process_set: the ranks that take part.
        prescale_factor: each element is multiplied by it before the reduction.
        postscale_factor: each element is multiplied by it after the reduction.

    Returns:
        The list of the results.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> [t.numpy().tolist() for t in hvd.grouped_reducescatter([tf.constant([1.0])], op=hvd.Sum)]
        [[1.0]]
    """
    tensors = _arguments.tensors(tensors)
    if not tensors:
        return []
    mpi_ops.check_scatter_op(op)
    _arguments.compressor(compression)

    def run(part: list[Any], _: int, own: Optional[str]) -> list[Any]:
        return mpi_ops._grouped_reducescatter(
            part,
            name=own,
            op=op,
            process_set=process_set,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )

    with tf.device(device_dense):
        inputs = [(*compression.compress(tf.convert_to_tensor(t)), _lib.WIRE_AS_IT_IS) for t in tensors]
        return _grouped(inputs, compression, None, run)
