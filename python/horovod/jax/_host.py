"""Blocking collectives on numpy arrays: the functions for JAX run these, now or inside a compiled program."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from horovod.common import _cells, _facts, _lib, _operations

# Operations whose output the engine allocates.
_SHAPED_BY_ALL = frozenset(kind.number for kind in _facts.kinds().values() if kind.sized_by_all)


class Operation(NamedTuple):
    """One collective of arrays, which are a group if there are several. The fields are those of ``gorovod_op``."""

    kind: int
    name: str
    process_set_id: int
    reduce_op: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    root_rank: int = 0
    wire: int = _lib.WIRE_AS_IT_IS


def run(
    kind: int,
    arrays: Sequence[Any],
    name: Optional[str],
    process_set_id: int,
    reduce_op: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root_rank: int = 0,
    wire: int = _lib.WIRE_AS_IT_IS,
    flags: int = 0,
) -> list[np.ndarray]:
    """Run one operation on each of ``arrays``, all as a group, and return the results. Blocks; any thread may call.

    Ranks match their calls by ``name``. Calls without a name are numbered by process set and kind, so all ranks of the
    set must make them in the same order. The other arguments are those of ``gorovod_op``. Raises as ``_lib.error``
    says.
    """
    inputs = [np.require(array, requirements="CA") for array in arrays]
    flags |= _cells.WILL_WAIT
    outputs = [None if kind in _SHAPED_BY_ALL else np.empty_like(array) for array in inputs]
    group = _operations.Group[_operations.Operation]([])
    try:
        for i, (array, output) in enumerate(zip(inputs, outputs)):
            one = _operations.describe(
                f"{name}.{i}".encode() if name and len(inputs) == 1 else None,
                array.shape,
                flags if output is None else flags | _cells.RELEASE_IF_OK,
                kind,
                dtype(array),
                reduce_op,
                root_rank,
                process_set_id,
                prescale,
                postscale,
                array.ctypes.data,
                0 if output is None else output.ctypes.data,
            )
            one.keeps = (array, output)
            group.operations.append(one)
            if wire:
                one.set_wire(wire)
        group.submit_as_fits(name.encode() if name else None)
    except Exception:
        group.free()
        raise
    try:
        status = group.wait()
    except BaseException:
        _operations.abandon(group)
        raise
    try:
        if status != _lib.OK:
            raise group.failure()
        return [
            _output(one, array) if output is None else output
            for one, array, output in zip(group.operations, inputs, outputs)
        ]
    finally:
        group.release()


def run_as_expected(
    operation: Operation, shapes: Sequence[tuple[int, ...]], arrays: Sequence[Any], flags: int = 0
) -> list[np.ndarray]:
    """Run ``operation``, whose results a program expects in ``shapes``. Raises ValueError if they have others, too."""
    results = run(arrays=[np.asarray(array) for array in arrays], flags=flags, **operation._asdict())
    for result, shape in zip(results, shapes):
        if result.shape != shape:
            raise ValueError(
                f"{operation.name}: the result has shape {result.shape}; inside of jax.jit all ranks must have the "
                f"same number of rows, which gives {shape}"
            )
    return results


def dtype(array: Any) -> int:
    """The engine's number of an array's type. Raises ValueError if it has none."""
    number = _facts.element_types().get(array.dtype.name)
    if number is None:
        raise ValueError(f"Arrays of type {array.dtype} are not supported.")
    return number


def _output(operation: _operations.Operation, array: np.ndarray) -> np.ndarray:
    def empty(shape: tuple[int, ...]) -> tuple[np.ndarray, int]:
        output = np.empty(shape, array.dtype)
        return output, output.ctypes.data

    return operation.output(array.ndim, array.itemsize, empty)
