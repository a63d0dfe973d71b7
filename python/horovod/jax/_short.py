"""The short way of a call on one small array in the memory of the host, outside of compiled programs.

The plain case only: for all else the functions return None, and have done nothing. What makes an array of the result is
a compiled program that does nothing, because JAX calls such a program faster than any function that makes arrays.
"""

from __future__ import annotations

from typing import Any, Optional

import jax
import numpy as np

from horovod.common import _arguments, _arrays, _lib
from horovod.jax import _placement, _tracing

_native = _arrays.native

# Shapes and types of results. XLA compiles a program for each, which takes longer than many calls.
_seen: set[tuple[Any, Any]] = set()
_PROGRAMS = 1024  # that are kept


@jax.jit
def _adopt(values: Any) -> Any:
    return values


def allreduce(
    array: Any, op: Any, name: Any, prescale: Any, postscale: Any, process_set: Any, wire: int
) -> Optional[jax.Array]:
    """The reduction of ``array`` over the ranks of ``process_set``, or None. It travels as ``wire``."""
    if _native is None or type(array).__name__ != "ArrayImpl":
        return None
    reduce_op = _arrays.plain_reduction(op, prescale, postscale)
    if reduce_op is None:
        return None
    return _run(_lib.ALLREDUCE, array, name, process_set, reduce_op, prescale, postscale, 0, wire)


def broadcast(array: Any, root_rank: Any, name: Any, process_set: Any) -> Optional[jax.Array]:
    """The array of one rank, or None."""
    if _native is None or type(array).__name__ != "ArrayImpl" or type(root_rank) is not int:
        return None
    return _run(_lib.BROADCAST, array, name, process_set, 0, 1.0, 1.0, root_rank, _lib.WIRE_AS_IT_IS)


def _run(
    kind: int,
    array: Any,
    name: Any,
    process_set: Any,
    reduce_op: int,
    prescale: float,
    postscale: float,
    root: int,
    wire: int,
) -> Optional[jax.Array]:
    if not _arrays.plain_name(name) or _tracing.in_program():
        return None
    devices = array.devices()
    if len(devices) != 1 or next(iter(devices)).platform != "cpu":
        return None
    source = np.asarray(array)
    if source.nbytes > _arrays.SMALL:
        return None
    target = _arrays.run(
        kind, source, np.empty_like(source), name and f"{name}.0".encode(), _arguments.process_set_id(process_set),
        reduce_op, prescale, postscale, root, wire, _lib.error,
    )  # fmt: skip
    return None if target is None else _result(array, devices, target)


def _result(array: jax.Array, devices: set[Any], target: np.ndarray) -> jax.Array:
    """``target`` as an array on the device of ``array``."""
    key = target.shape, target.dtype
    if key in _seen:
        result = _adopt(target)
        if type(result) is type(array) and result.devices() == devices:
            return result
    elif len(_seen) < _PROGRAMS:
        _seen.add(key)
    return _placement.beside(array, target)
