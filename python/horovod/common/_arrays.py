"""The short way of blocking calls on one small array: the extension submits the operation, and waits for its end.

JAX and TensorFlow show a tensor in host memory as NumPy's array, without a copy. See ``shim/python/arrays.c``.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Optional

import numpy as np

from horovod.common import _extension, _facts, _lib, _operations
from horovod.common._reduce_ops import ALLREDUCE_OPS, Adasum, Average

# The reduce operations that need no further check.
_PLAIN_OPS = ALLREDUCE_OPS - {Adasum}

# The most bytes of an array: the extension's own bound. Larger ones gain nothing.
SMALL = 1 << 16

# Operations that the extension has submitted, and that nobody holds yet.
_adrift: dict[_operations.Operation, None] = {}


def _element_types() -> dict[np.dtype, tuple[int, int]]:
    """The engine's numbers of NumPy's types that it can combine, and their sizes."""
    known = {}
    for name in _facts.reduced_types():
        try:
            dtype = np.dtype(name)
        except TypeError:
            try:
                dtype = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))  # JAX and TensorFlow have it
            except ImportError:
                continue
        known[dtype] = _facts.element_types()[name], dtype.itemsize
    return known


def _set_up() -> Any:
    extension = _extension.load()
    if extension is not None:
        pool = _operations.pool
        extension.setup_arrays(
            pool.cell_class, pool.free, pool.grow, _adrift, _element_types(), _lib.WAIT_SLICE_MS
        )  # fmt: skip
    return extension


# The extension, or None where there is none.
native = _set_up()


def plain_name(name: Any) -> bool:
    """Whether C can have the name, which may be None, and no check has more to say."""
    return name is None or type(name) is str and name != "" and name.isascii() and "\0" not in name


def plain_reduction(op: Any, prescale: Any, postscale: Any) -> Optional[int]:
    """The number of a reduce operation if no check of it, and of the factors, has more to say. None is the average."""
    if type(prescale) is not float or type(postscale) is not float:
        return None
    if op is None:
        return Average
    return op if type(op) is int and op in _PLAIN_OPS else None


def run(
    kind: int,
    source: np.ndarray,
    target: Optional[np.ndarray],
    name: Optional[bytes],
    process_set: int,
    reduce_op: int,
    prescale: float,
    postscale: float,
    root_rank: int,
    wire: int,
    failure: Callable[[int], Exception],
) -> Any:
    """The result of an allreduce or a broadcast of ``source``: ``target``, or a DLPack capsule if that is None.

    None if this is no plain case; then nothing has been done. If the operation is refused or fails, raises what
    ``failure`` makes of its status; ``_lib.last_error`` has the reason. Ctrl-C interrupts the wait, not the operation.
    """
    result = native.run_on_array(
        kind, source, target, name, process_set, reduce_op, prescale, postscale, root_rank, wire
    )  # fmt: skip
    kind_of_result = type(result)
    if kind_of_result is int:
        raise failure(result)
    return _end(result, failure) if kind_of_result is _operations.Operation else result


def _end(operation: _operations.Operation, failure: Callable[[int], Exception]) -> Any:
    """The result of an operation that has failed, or that takes long."""
    try:
        status = operation.wait()
    except BaseException:
        _operations.abandon(_operations.Group([operation]))
        del _adrift[operation]
        raise
    del _adrift[operation]
    try:
        if status != _lib.OK:
            raise failure(_lib.wait(operation.handle))
        return operation.keeps[1]
    finally:
        operation.release()
