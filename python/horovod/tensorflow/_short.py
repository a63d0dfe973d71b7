"""The short way of an eager call on one small tensor in the memory of the host: no operation of TensorFlow runs.

The plain case only: for all else the functions return None, and have done nothing. While a tape or an accumulator
records, TensorFlow's operation is needed, because it has a gradient.
"""

from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from horovod.common import _arguments, _arrays, _lib
from horovod.common.process_sets import ProcessSet

try:
    from tensorflow.python.pywrap_tfe import TFE_Py_TapeSetIsEmpty as _nothing_records
except ImportError:  # a later TensorFlow may have another name for it

    def _nothing_records() -> bool:
        return False


_native = _arrays.native
_Tensor = ops.EagerTensor

# The types that the operations take and that every TensorFlow adopts, which leaves out bool.
_COMBINED = frozenset((tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64))
_MOVED = _COMBINED | {tf.uint16, tf.int16}

# The errors that the shim's kernels raise for a status; see shim/tensorflow/collectives.c.
_ERRORS: dict[int, Any] = {
    _lib.PRECONDITION_ERROR: tf.errors.FailedPreconditionError,
    _lib.ABORTED: tf.errors.AbortedError,
    _lib.INVALID_ARGUMENT: tf.errors.InvalidArgumentError,
}
# Failures that elastic training survives, which it recognises by this word.
_SURVIVABLE = {tf.errors.AbortedError, tf.errors.UnknownError}


@functools.lru_cache(maxsize=None)
def _on_host_alone() -> bool:
    """Whether all tensors are in one memory, that of the host."""
    return len(tf.config.list_logical_devices()) == 1


def _takes(tensor: Any, types: frozenset[tf.DType]) -> bool:
    return (
        _native is not None
        and type(tensor) is _Tensor
        and tensor.dtype in types
        and context.executing_eagerly()
        and _nothing_records()
        and not context.context().op_callbacks
        and _on_host_alone()
    )


def allreduce(
    tensor: Any, op: Any, name: Any, prescale: Any, postscale: Any, process_set: Any, wire: int = _lib.WIRE_AS_IT_IS
) -> Optional[tf.Tensor]:
    """The reduction of ``tensor`` over the ranks of ``process_set``, or None. It travels as ``wire``."""
    if not _takes(tensor, _COMBINED):
        return None
    reduce_op = _arrays.plain_reduction(op, prescale, postscale)
    if reduce_op is None:
        return None
    return _run("HorovodAllreduce", _lib.ALLREDUCE, tensor, name, process_set, reduce_op, prescale, postscale, 0, wire)


def broadcast(tensor: Any, root_rank: Any, name: Any, process_set: Any) -> Optional[tf.Tensor]:
    """The tensor of one rank, or None."""
    if type(root_rank) is not int or not _takes(tensor, _MOVED):
        return None
    wire = _lib.WIRE_AS_IT_IS
    return _run("HorovodBroadcast", _lib.BROADCAST, tensor, name, process_set, 0, 1.0, 1.0, root_rank, wire)


def _run(
    kind: str,
    number: int,
    tensor: tf.Tensor,
    name: Any,
    process_set: Any,
    reduce_op: int,
    prescale: float,
    postscale: float,
    root_rank: int,
    wire: int,
) -> Optional[tf.Tensor]:
    if type(process_set) is not ProcessSet or not _arrays.plain_name(name):
        return None
    try:
        source = np.asarray(tensor)
    except ValueError:  # a single bfloat16 makes no array
        return None

    def failure(status: int) -> Exception:
        error = _ERRORS.get(status, tf.errors.UnknownError)
        word = "Horovod: " if error in _SURVIVABLE else ""
        reason = _lib.last_error() or f"operation failed with status {status}"
        return error(None, None, f"{name or kind}: {word}{reason} [Op:{kind}]")

    capsule = _arrays.run(
        number, source, None, (name or kind).encode(), _arguments.process_set_id(process_set),
        reduce_op, prescale, postscale, root_rank, wire, failure,
    )  # fmt: skip
    return None if capsule is None else tf.experimental.dlpack.from_dlpack(capsule)
