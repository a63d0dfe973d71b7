"""Collectives as TensorFlow operations, and their gradients.

They work eagerly, in ``tf.function`` and in graphs with sessions. Ranks may run them in any order, and match them by
name. In a graph that is the name of the node; in eager mode it is the argument ``name``, or else the kind of the
operation. Their kernels run on the CPU and occupy no thread while they wait.

An argument of a wrong type or value is a ``TypeError`` or ``ValueError``, at once. A failure raises
``tf.errors.FailedPreconditionError`` if ranks disagree, ``InvalidArgumentError`` for arguments that only the engine can
refuse, and ``UnknownError`` if a rank has died or left, with the cause in the message.
"""

from __future__ import annotations

import re
from typing import Any, Optional, Sequence

import tensorflow as tf
from tensorflow.python.framework import ops

from horovod.common import _arguments, _lib
from horovod.common._job import *  # noqa: F403  what every front end has
from horovod.common._job import ProcessSet, global_process_set
from horovod.common._job import basics as _basics  # noqa: F401
from horovod.common._reduce_ops import ALLREDUCE_OPS, SCATTER_OPS, Adasum, Average, Max, Min, Product, Sum  # noqa: F401
from horovod.common._reduce_ops import handle_average_backwards_compatibility as handle_average_backwards_compatibility
from horovod.tensorflow import _library, _short

_native = _library.load()


def check_reduce_op(op: Any) -> int:
    """``op``, an operation of allreduces. ValueError if it is none."""
    return _arguments.reduce_op(op, ALLREDUCE_OPS, "Average, Sum, Adasum, Min, Max or Product")


def check_scatter_op(op: Any) -> int:
    """``op``, an operation of reducescatters. NotImplementedError for Adasum, ValueError for other values."""
    if op == Adasum:
        raise NotImplementedError("The Adasum reduction is not supported for reducescatter.")
    return _arguments.reduce_op(op, SCATTER_OPS, "Average or Sum")


def _normalize_name(name: str) -> str:
    """``name`` with ``_`` for every character that an operation's name cannot have."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _names(kind: str, name: Optional[str], *tensors: Any) -> dict[str, str]:
    """The arguments that give an operation its name: that of its node, and in eager mode that of the tensor."""
    _arguments.name(name)
    if tf.executing_eagerly():
        return {"tensor_name": name} if name else {}
    if name is None:
        name = "_".join([kind, *(_normalize_name(t.name) for t in tensors)])
    return {"name": name}


def _set_id(process_set: ProcessSet) -> int:
    """The number of a process set. ValueError if the set does not exist when the operation is made."""
    if isinstance(process_set, _SameSet):
        return process_set.process_set_id
    return _arguments.process_set_id(process_set)


def _scales(prescale_factor: Any, postscale_factor: Any) -> dict[str, float]:
    return {
        "prescale_factor": _arguments.number(prescale_factor, "prescale_factor"),
        "postscale_factor": _arguments.number(postscale_factor, "postscale_factor"),
    }


def _ends(tensors: Sequence[Any]) -> Sequence[Any]:
    return tensors[:1] if len(tensors) < 2 else (tensors[0], tensors[-1])


def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    wire: int = _lib.WIRE_AS_IT_IS,
) -> tf.Tensor:
    """The reduction of ``tensor`` over the ranks of ``process_set``, of one shape and dtype. Differentiable.

    ``wire`` is the form in which sums and averages of float32 and float64 travel between hosts.
    """
    short = _short.allreduce(tensor, op, name, prescale_factor, postscale_factor, process_set, wire)
    if short is not None:
        return short
    tensor = tf.convert_to_tensor(tensor)
    return _native.horovod_allreduce(
        tensor,
        reduce_op=check_reduce_op(op),
        wire=wire,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_scales(prescale_factor, postscale_factor),
        **_names("HorovodAllreduce", name, tensor),
    )


def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    wire: int = _lib.WIRE_AS_IT_IS,
) -> list[tf.Tensor]:
    """The reductions of ``tensors``, of one dtype. They start when all are ready on all ranks. Differentiable.

    ``wire`` is the form in which sums and averages of float32 and float64 travel between hosts.
    """
    tensors = [tf.convert_to_tensor(t) for t in _arguments.tensors(tensors)]
    if not tensors:
        return []
    return _native.horovod_grouped_allreduce(
        tensors,
        reduce_op=check_reduce_op(op),
        wire=wire,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_scales(prescale_factor, postscale_factor),
        **_names("HorovodGroupedAllreduce", name, *_ends(tensors)),
    )


def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenate the tensors of all ranks along their first dimension, in the order of ranks. Differentiable.

    Args:
        tensor: a tensor, variable or array; the first dimension may differ.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scope out of the operation's name.

    Returns:
        The rows of all ranks.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> hvd.allgather(tf.constant([1, 2])).numpy().tolist()
        [1, 2]
    """
    return _allgather(tensor, name, ignore_name_scope, process_set)


def _allgather(
    tensor: Any, name: Optional[str], ignore_name_scope: bool, process_set: ProcessSet, adds_up: bool = False
) -> tf.Tensor:
    """:func:`allgather`. ``adds_up``: see ``GOROVOD_ADDS_UP``."""
    tensor = tf.convert_to_tensor(tensor)
    return _native.horovod_allgather(
        tensor,
        adds_up=adds_up,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_names("HorovodAllgather", name, tensor),
    )


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Gather many tensors at once, each as :func:`allgather`. They start when all are ready on all ranks.

    Args:
        tensors: a list of tensors of one dtype; all ranks give as many, in the same order.
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
        >>> [t.numpy().tolist() for t in hvd.grouped_allgather([tf.constant([1]), tf.constant([2])])]
        [[1], [2]]
    """
    tensors = [tf.convert_to_tensor(t) for t in _arguments.tensors(tensors)]
    if not tensors:
        return []
    return _native.horovod_grouped_allgather(
        tensors,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_names("HorovodGroupedAllgather", name, *_ends(tensors)),
    )


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Copy the tensor of one rank to all ranks of ``process_set``. Differentiable.

    Args:
        tensor: a tensor, variable or array; shape and dtype must be equal on all ranks.
        root_rank: the rank whose tensor all ranks get, a rank of the world.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scope out of the operation's name.

    Returns:
        The root's tensor.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> hvd.broadcast(tf.constant([3]), root_rank=0).numpy().tolist()
        [3]
    """
    short = _short.broadcast(tensor, root_rank, name, process_set)
    if short is not None:
        return short
    tensor = tf.convert_to_tensor(tensor)
    return _native.horovod_broadcast(
        tensor,
        root_rank=_arguments.root_rank(root_rank),
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_names("HorovodBroadcast", name, tensor),
    )


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrite ``variables`` with those of one rank.

    Resource variables are overwritten in place, if TensorFlow allows that; others are assigned.

    Args:
        variables: a list of variables, the same on all ranks.
        root_rank: the rank whose variables all ranks get.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        Their new values; in a graph, the operation that assigns them.

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> v = tf.Variable([3])
        >>> [x.numpy().tolist() for x in hvd.broadcast_([v], root_rank=0)]
        [[3]]
    """
    check_variables(variables)
    prefix = _arguments.name(name) or "HorovodBroadcast"
    assigned = []
    for variable in variables:
        own = f"{prefix}_{_normalize_name(variable.name)}"
        if _has_memory_of_its_own(variable):
            assigned.append(_broadcast_inplace(variable, root_rank, own, process_set))
            continue
        value = broadcast(variable, root_rank, own, process_set=process_set)
        assigned.append(variable.assign(value) if hasattr(variable, "assign") else tf.compat.v1.assign(variable, value))
    return assigned


def mark_as_share(variable: tf.Variable) -> None:
    """Mark a variable of which each rank has its own part, so that no rank's overwrites those of others."""
    variable._horovod_share = True


def is_share(variable: Any) -> bool:
    """Whether ``variable``, or the one inside a variable of Keras 3, was marked by :func:`mark_as_share`."""
    return getattr(getattr(variable, "_value", variable), "_horovod_share", False)


def check_variables(variables: Sequence[Any]) -> None:
    """TypeError if one of ``variables`` is no variable, for example a tensor, which cannot be assigned to.

    ValueError if one is this rank's share of a sharded optimizer's state.
    """
    for i, variable in enumerate(variables):
        if is_share(variable):
            raise ValueError(
                f"number {i} of the variables (from 0), {variable.name}, is this rank's share of a sharded optimizer, "
                "so it cannot be broadcast: broadcast the model's variables alone"
            )
        if not hasattr(variable, "assign") and not getattr(getattr(variable, "dtype", None), "_is_ref_dtype", False):
            raise TypeError(f"number {i} of the variables (from 0) is not a tf.Variable: {variable!r}")


def _has_memory_of_its_own(variable: Any) -> bool:
    """Whether :func:`_broadcast_inplace` can take ``variable``, under this TensorFlow."""
    handle = getattr(variable, "handle", None)
    return hasattr(_native, "horovod_broadcast_inplace") and getattr(handle, "dtype", None) == tf.resource


def _broadcast_inplace(variable: Any, root_rank: int, name: str, process_set: ProcessSet) -> Any:
    done = _native.horovod_broadcast_inplace(
        variable.handle,
        root_rank=_arguments.root_rank(root_rank),
        process_set_id=_set_id(process_set),
        **_names("HorovodBroadcastInplace", name, variable),
    )
    if tf.executing_eagerly():
        return variable
    with tf.control_dependencies([done]):
        return variable.read_value()


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows of ``tensor`` to each rank of ``process_set``. Differentiable in the rows.

    Args:
        tensor: a tensor, variable or array; dtype and the other dimensions must be equal on all ranks.
        splits: how many rows go to each rank; None sends the same number to each.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        ignore_name_scope: leave TensorFlow's name scope out of the operation's name.

    Returns:
        The received rows, in the order of the ranks; with ``splits`` also the number from each rank (int32).

    Raises:
        TypeError, ValueError: an argument is wrong.
        tf.errors.FailedPreconditionError: the ranks disagree.
        tf.errors.UnknownError: a rank has died or left.

    Example:
        >>> hvd.alltoall(tf.constant([4, 5])).numpy().tolist()
        [4, 5]
    """
    tensor = tf.convert_to_tensor(tensor)
    rows = tf.zeros([0], tf.int32) if splits is None else tf.convert_to_tensor(splits, tf.int32)
    output, received = _native.horovod_alltoall(
        tensor,
        splits=rows,
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_names("HorovodAlltoall", name, tensor),
    )
    return output if splits is None else (output, received)


def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's rows of the reduction of ``tensor``; the first ranks get one more if they cannot be equal."""
    tensor = tf.convert_to_tensor(tensor)
    return _native.horovod_reducescatter(
        tensor,
        reduce_op=check_scatter_op(op),
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_scales(prescale_factor, postscale_factor),
        **_names("HorovodReducescatter", name, tensor),
    )


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """:func:`_reducescatter` of each of ``tensors``, of one dtype. They start when all are ready on all ranks."""
    tensors = [tf.convert_to_tensor(t) for t in _arguments.tensors(tensors)]
    if not tensors:
        return []
    return _native.horovod_grouped_reducescatter(
        tensors,
        reduce_op=check_scatter_op(op),
        ignore_name_scope=ignore_name_scope,
        process_set_id=_set_id(process_set),
        **_scales(prescale_factor, postscale_factor),
        **_names("HorovodGroupedReducescatter", name, *_ends(tensors)),
    )


def join() -> tf.Tensor:
    """Take part in the others' reductions with zeros until all ranks have joined.

    Returns:
        The last rank to join.

    Example:
        >>> int(hvd.join())
        0
    """
    return _native.horovod_join()


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks of a process set, when the graph runs.

    Args:
        process_set_id: the number of the set; 0 has all ranks.
        name: of the operation in the graph.

    Returns:
        A tensor of the number.

    Example:
        >>> int(hvd.size_op())
        1
    """
    return _native.horovod_size(process_set_id=_lib.int32(process_set_id, "process_set_id"), name=name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Tell whether this rank is in a process set, when the graph runs.

    Args:
        process_set_id: the number of the set; 0 has all ranks.
        name: of the operation in the graph.

    Returns:
        1 if it is, else 0.

    Example:
        >>> int(hvd.process_set_included_op())
        1
    """
    return _native.horovod_process_set_included(process_set_id=_lib.int32(process_set_id, "process_set_id"), name=name)


def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks of this host, when the graph runs.

    Args:
        name: of the operation in the graph.

    Returns:
        A tensor of the number.

    Example:
        >>> int(hvd.local_size_op())
        1
    """
    return _native.horovod_local_size(name=name)


def rank_op(name: Optional[str] = None) -> tf.Tensor:
    """This rank, when the graph runs.

    Args:
        name: of the operation in the graph.

    Returns:
        A tensor of the number.

    Example:
        >>> int(hvd.rank_op())
        0
    """
    return _native.horovod_rank(name=name)


def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    """This rank's number on its host, when the graph runs.

    Args:
        name: of the operation in the graph.

    Returns:
        A tensor of the number.

    Example:
        >>> int(hvd.local_rank_op())
        0
    """
    return _native.horovod_local_rank(name=name)


class _SameSet:
    """The process set of the operation whose gradient is computed."""

    def __init__(self, process_set_id: int) -> None:
        self.process_set_id = process_set_id


def _like(op: Any) -> dict[str, Any]:
    return {
        "process_set": _SameSet(op.get_attr("process_set_id")),
        "ignore_name_scope": op.get_attr("ignore_name_scope"),
    }


def _reduction(op: Any) -> dict[str, Any]:
    return {
        "op": op.get_attr("reduce_op"),
        "wire": op.get_attr("wire"),
        "prescale_factor": op.get_attr("prescale_factor"),
        "postscale_factor": op.get_attr("postscale_factor"),
        **_like(op),
    }


def _incoming(op: Any, grads: Sequence[Any]) -> list[tf.Tensor]:
    """The gradients of the outputs, in the operation's own type: later code may have used another one."""
    return [tf.cast(tf.convert_to_tensor(grad), x.dtype) for x, grad in zip(op.inputs, grads)]


@ops.RegisterGradient("HorovodAllreduce")
def _allreduce_grad(op: Any, grad: Any) -> Any:
    (grad,) = _incoming(op, [grad])
    return _allreduce(grad, **_reduction(op))


@ops.RegisterGradient("HorovodGroupedAllreduce")
def _grouped_allreduce_grad(op: Any, *grads: Any) -> Any:
    return _grouped_allreduce(_incoming(op, grads), **_reduction(op))


def _own_rows(op: Any, x: Any, grad: Any) -> Any:
    """The part of an allgather's gradient that belongs to this rank's rows."""
    like = _like(op)
    rows = allgather(tf.shape(x, out_type=tf.int32)[:1], **like)
    place = _native.horovod_rank(process_set_id=like["process_set"].process_set_id)
    me = tf.reduce_sum(rows[:place])
    return grad[me : me + tf.shape(x)[0]]


@ops.RegisterGradient("HorovodAllgather")
def _allgather_grad(op: Any, grad: Any) -> Any:
    (grad,) = _incoming(op, [grad])
    return _own_rows(op, op.inputs[0], _allreduce(grad, op=Average, **_like(op)))


@ops.RegisterGradient("HorovodGroupedAllgather")
def _grouped_allgather_grad(op: Any, *grads: Any) -> Any:
    reduced = _grouped_allreduce(_incoming(op, grads), op=Average, **_like(op))
    return [_own_rows(op, x, grad) for x, grad in zip(op.inputs, reduced)]


@ops.RegisterGradient("HorovodBroadcast")
def _broadcast_grad(op: Any, grad: Any) -> Any:
    (grad,) = _incoming(op, [grad])
    reduced = _allreduce(grad, op=Average, **_like(op))
    return tf.where(tf.equal(rank_op(), op.get_attr("root_rank")), reduced, tf.zeros_like(reduced))


@ops.RegisterGradient("HorovodAlltoall")
def _alltoall_grad(op: Any, grad: Any, _: Any) -> Any:
    (grad,) = _incoming(op, [grad])
    back, _ = alltoall(grad, splits=op.outputs[1], **_like(op))
    return [back, None]


def _scattered_back(op: Any, grads: Sequence[Any]) -> list[tf.Tensor]:
    grads = _incoming(op, grads)
    scale = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    if scale != 1:
        grads = [grad * tf.cast(scale, grad.dtype) for grad in grads]
    if op.get_attr("reduce_op") == Sum:
        size = size_op(op.get_attr("process_set_id"))
        grads = [grad * tf.cast(size, grad.dtype) for grad in grads]
    return grads


@ops.RegisterGradient("HorovodReducescatter")
def _reducescatter_grad(op: Any, grad: Any) -> Any:
    (grad,) = _scattered_back(op, [grad])
    return allgather(grad, **_like(op))


@ops.RegisterGradient("HorovodGroupedReducescatter")
def _grouped_reducescatter_grad(op: Any, *grads: Any) -> Any:
    return grouped_allgather(_scattered_back(op, grads), **_like(op))


for _kind in ("BroadcastInplace", "Join", "Barrier", "Rank", "Size", "LocalRank", "LocalSize", "ProcessSetIncluded"):
    ops.NotDifferentiable(f"Horovod{_kind}")
