"""Collectives on arrays of JAX, and on trees of them.

Called on arrays they block, and run at once. Inside of ``jax.jit`` and the like they become operations of the compiled
program, which ranks match by their names: without a name, by the place among those that were traced. All ranks must run
the same program. Where XLA cannot have them, on a TPU or a GPU without CUDA or with an old jaxlib, they are callbacks
into the host in the order of the source.

Errors are HorovodInternalError or ValueError. Inside a compiled program, JAX raises its own runtime error with that
text.
"""

from __future__ import annotations

from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import _arguments, _facts, _lib, _pickling
from horovod.common._job import *  # noqa: F403  what every front end has
from horovod.common._job import ProcessSet, global_process_set, rank
from horovod.common._job import basics as _basics  # noqa: F401
from horovod.common._reduce_ops import ALLREDUCE_OPS, SCATTER_OPS, Average
from horovod.common._reduce_ops import handle_average_backwards_compatibility as _average_or
from horovod.jax import _bits, _host, _now, _short, _traced, _tracing


class _Forms(type):
    """The type of :class:`Compression`, whose attributes are also the engine's own forms, by their names."""

    def __getattr__(cls, form: str) -> int:
        return _facts.kept_wire(form).number

    def __dir__(cls) -> list[str]:
        return [*super().__dir__(), *(form for form, wire in _facts.wires().items() if wire.keeps)]


class Compression(metaclass=_Forms):
    """The form in which sums and averages of float32 and float64 travel between hosts. Inside a host nothing is
    rounded.

    ``int8`` and ``fp8`` send 8 bits a number, of float32 only. Each rank keeps the rounding errors of a tensor by its
    name and process set, and adds them to the next allreduce of that name, so that they do not accumulate. Blocks of 32
    numbers have a common scale. The numbers of ``int8`` are integers; those of ``fp8`` are floats, so that the small
    ones of a block lose less.

    Example:
        >>> float(hvd.allreduce(jnp.float32(1), compression=hvd.Compression.fp16))
        1.0
    """

    none = _lib.WIRE_AS_IT_IS
    fp16 = _lib.WIRE_FP16
    bf16 = _lib.WIRE_BF16


def _is_form(compression: Any) -> bool:
    return isinstance(compression, int) and 0 <= compression < len(_facts.wires())


def check_compression(compression: Any) -> int:
    """``compression``, one of :class:`Compression`. TypeError for anything else."""
    if not _is_form(compression):
        raise TypeError(f"compression must be one of hvd.Compression, not {compression!r}")
    return compression


def _is_traced(leaves: list[Any]) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or _tracing.in_program()


def _run(kind: int, leaves: list[Any], shapes: Optional[list[tuple[int, ...]]], name: Optional[str], **of: Any) -> Any:
    """The results for ``leaves``, as JAX's arrays. ``shapes`` are the results' shapes, if they differ."""
    _arguments.name(name)
    if not leaves:
        return []
    encoded = [_bits.encode(leaf, kind, of.get("reduce_op", 0)) for leaf in leaves]
    arrays = [e.array for e in encoded]
    if shapes is not None:
        shapes = [(shape[0], *array.shape[1:]) for shape, array in zip(shapes, arrays)]
    if _is_traced(leaves):
        results = _traced.run(kind, arrays, shapes, name, **of)
    else:
        results = _now.run(kind, arrays, shapes, name, **of)
    return [e.decode(result) for e, result in zip(encoded, results)]


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: int = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduce an array, or each array of a tree, over the ranks: the average, unless ``op`` says otherwise. Blocks.

    Differentiable for Average and Sum; the gradient is reduced in the same way.

    Args:
        tensor: an array, or a tree of arrays, which start together. Shapes and dtypes must be equal on all ranks.
        average: deprecated form of ``op``: True is Average, False is Sum.
        name: the name by which ranks match their calls.
        compression: how the tensor travels between hosts, one of :class:`Compression`.
        op: Average (default), Sum, Min, Max, Product or, on floating-point arrays of all ranks, Adasum.
        prescale_factor: each element is multiplied by it before the reduction.
        postscale_factor: each element is multiplied by it after the reduction.
        process_set: the ranks that take part.

    Returns:
        The result, in the form of ``tensor``.

    Raises:
        TypeError, ValueError: an argument is wrong.
        HorovodInternalError: the ranks disagree, or one of them is gone; from a compiled program as JAX's runtime
            error.

    Example:
        >>> hvd.allreduce(jnp.array([1.0, 2.0]), op=hvd.Sum)
        Array([1., 2.], dtype=float32)
        >>> import jax
        >>> jax.jit(hvd.allreduce)({"weight": jnp.array([4.0])})
        {'weight': Array([4.], dtype=float32)}
    """
    if average is None and type(compression) is int and _is_form(compression):
        short = _short.allreduce(tensor, op, name, prescale_factor, postscale_factor, process_set, compression)
        if short is not None:
            return short
    reduce_op = _arguments.reduce_op(
        _average_or(op, average), ALLREDUCE_OPS, "Average, Sum, Adasum, Min, Max or Product"
    )
    scales = (
        _arguments.number(prescale_factor, "prescale_factor"),
        _arguments.number(postscale_factor, "postscale_factor"),
    )
    leaves, tree = jax.tree_util.tree_flatten(tensor)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    results = _run(
        _lib.ALLREDUCE,
        leaves,
        None,
        name,
        process_set_id=_arguments.process_set_id(process_set),
        reduce_op=reduce_op,
        prescale=scales[0],
        postscale=scales[1],
        wire=check_compression(compression),
    )
    return jax.tree_util.tree_unflatten(tree, results)


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenate the arrays of all ranks along their first dimension, in the order of ranks. Blocks.

    Args:
        tensor: an array, or a tree of arrays, which start together. The numbers of rows may differ between ranks, but
            not inside ``jax.jit``, where the shape of the result must be known.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        The rows of all ranks, in the form of ``tensor``.

    Raises:
        ValueError: an array has no dimension.
        HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.allgather(jnp.array([1, 2]))
        Array([1, 2], dtype=int32)
    """
    leaves, tree = jax.tree_util.tree_flatten(tensor)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    if any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError("allgather needs arrays with at least one dimension")
    process_set_id = _arguments.process_set_id(process_set)
    n = process_set.size() or 1
    shapes = [(n * leaf.shape[0], *leaf.shape[1:]) for leaf in leaves]
    results = _run(_lib.ALLGATHER, leaves, shapes, name, process_set_id=process_set_id)
    return jax.tree_util.tree_unflatten(tree, results)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Copy the array of one rank to all ranks. Blocks.

    Args:
        tensor: an array, or a tree of arrays, which start together. Shapes and dtypes must be equal on all ranks.
        root_rank: the rank whose array all ranks get, a rank of the world.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.

    Returns:
        The root's array, in the form of ``tensor``.

    Raises:
        TypeError, ValueError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.broadcast(jnp.array([3]), root_rank=0)
        Array([3], dtype=int32)
    """
    short = _short.broadcast(tensor, root_rank, name, process_set)
    if short is not None:
        return short
    leaves, tree = jax.tree_util.tree_flatten(tensor)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    of = {"process_set_id": _arguments.process_set_id(process_set), "root_rank": _arguments.root_rank(root_rank)}
    results = _run(_lib.BROADCAST, leaves, None, name, **of)
    return jax.tree_util.tree_unflatten(tree, results)


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce an array over the ranks, and give each rank its rows. Blocks.

    If the rows cannot be divided equally, the first ranks get one more row.

    Args:
        tensor: an array, or a tree of arrays, which start together. Shapes and dtypes must be equal on all ranks.
        op: Average or Sum.
        name: the name by which ranks match their calls.
        process_set: the ranks that take part.
        prescale_factor: each element is multiplied by it before the reduction.
        postscale_factor: each element is multiplied by it after the reduction.

    Returns:
        This rank's rows, in the form of ``tensor``.

    Raises:
        ValueError: an array has no dimension, or ``op`` is not allowed.
        TypeError, HorovodInternalError: as :func:`allreduce`.

    Example:
        >>> hvd.reducescatter(jnp.array([1.0, 2.0]), op=hvd.Sum)
        Array([1., 2.], dtype=float32)
    """
    leaves, tree = jax.tree_util.tree_flatten(tensor)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    if any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError("reducescatter needs arrays with at least one dimension")
    process_set_id = _arguments.process_set_id(process_set)
    shapes = [(_facts.share(leaf.shape[0], process_set_id) or 0, *leaf.shape[1:]) for leaf in leaves]
    of = {
        "reduce_op": _arguments.reduce_op(op, SCATTER_OPS, "Average or Sum"),
        "prescale": _arguments.number(prescale_factor, "prescale_factor"),
        "postscale": _arguments.number(postscale_factor, "postscale_factor"),
    }
    results = _run(_lib.REDUCESCATTER, leaves, shapes, name, process_set_id=process_set_id, **of)
    return jax.tree_util.tree_unflatten(tree, results)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Give all ranks of ``process_set`` the ``obj`` of one rank, pickled on the way. Blocks.

    Args:
        obj: any picklable object; only that of the root matters.
        root_rank: the rank whose object all ranks get.
        name: must be the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The root's object. The root gets its own.

    Example:
        >>> hvd.broadcast_object({"epoch": 3}, root_rank=0)
        {'epoch': 3}
    """
    name = _arguments.name(name) or "broadcast_object"
    root_rank = _arguments.root_rank(root_rank)
    is_root = rank() == root_rank
    content = np.frombuffer(_pickling.dumps(obj), np.uint8) if is_root else np.zeros(0, np.uint8)
    of = {"process_set_id": _arguments.process_set_id(process_set), "root_rank": root_rank}
    (length,) = _host.run(_lib.BROADCAST, [np.array([content.size], np.int64)], f"{name}.sz", **of)
    if not is_root:
        content = np.zeros(int(length[0]), np.uint8)
    (content,) = _host.run(_lib.BROADCAST, [content], f"{name}.t", **of)
    return obj if is_root else _pickling.loads(content.tobytes())


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Give all ranks of ``process_set`` the objects of all of them, pickled on the way. Blocks.

    Args:
        obj: any picklable object.
        name: must be the same on all ranks.
        process_set: the ranks that take part.

    Returns:
        The objects, in the order of ranks.

    Example:
        >>> hvd.allgather_object("rank 0")
        ['rank 0']
    """
    name = _arguments.name(name) or "allgather_object"
    content = np.frombuffer(_pickling.dumps(obj), np.uint8)
    of = {"process_set_id": _arguments.process_set_id(process_set)}
    (lengths,) = _host.run(_lib.ALLGATHER, [np.array([content.size], np.int64)], f"{name}.sz", **of)
    (contents,) = _host.run(_lib.ALLGATHER, [content], f"{name}.t", **of)
    ends = np.cumsum(lengths)
    return [_pickling.loads(contents[end - length : end].tobytes()) for end, length in zip(ends, lengths)]
