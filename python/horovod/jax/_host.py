"""Collectives on numpy arrays, which block: what the functions for JAX run, now or inside of a compiled program."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Sequence

import numpy as np

from horovod.common import _facts, _lib, _slots

# Operations whose output the engine allocates.
_SHAPED_BY_ALL = frozenset(kind.number for kind in _facts.kinds().values() if kind.sized_by_all)

# What was submitted and not waited for to the end, since the caller was interrupted: the engine may still use it.
_abandoned: list[Any] = []


class Operation(NamedTuple):
    """One collective of some arrays, which are a group if there are several. The fields are those of ``gorovod_op``."""

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
) -> list[np.ndarray]:
    """Run one operation on each of ``arrays``, all as a group, and return the results. Blocks; any thread may call.

    ``name`` is by which ranks match their calls; the engine numbers those without one by process set and kind, so all
    its ranks must make them in the same order. The other arguments are those of ``gorovod_op``. Raises as
    ``_lib.error`` says.
    """
    inputs = [np.require(array, requirements="CA") for array in arrays]
    outputs = [None if kind in _SHAPED_BY_ALL else np.empty_like(array) for array in inputs]
    slots: list[_slots.Slot] = []
    pending = (slots, inputs, outputs)
    try:
        for i, (array, output) in enumerate(zip(inputs, outputs)):
            slot = _slots.describe(
                f"{name}.{i}".encode() if name and len(inputs) == 1 else None,
                array.shape,
                _slots.WILL_WAIT,
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
            slots.append(slot)
            if wire:
                slot.set_wire(wire)
        if len(slots) == 1:
            _slots.enqueue(slots[0])
        elif slots:
            _slots.enqueue_group(name.encode() if name else None, slots)
    except Exception:
        for slot in slots:
            slot.free()
        raise
    try:
        failures = [_wait(slot) for slot in slots]
    except BaseException:
        _abandoned.append(pending)
        raise
    try:
        for failure in failures:
            if failure is not None:
                raise failure
        return [
            _output(slot.handle, array) if output is None else output
            for slot, array, output in zip(slots, inputs, outputs)
        ]
    finally:
        for slot in slots:
            _lib.release(slot.handle)
            slot.free()


def run_as_expected(operation: Operation, shapes: Sequence[tuple[int, ...]], arrays: Sequence[Any]) -> list[np.ndarray]:
    """Run ``operation``, whose results a program expects in ``shapes``. Raises ValueError if they have others, too."""
    results = run(arrays=[np.asarray(array) for array in arrays], **operation._asdict())
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


def _wait(slot: _slots.Slot) -> Optional[Exception]:
    """Wait for the end, and return the failure, if it is one. Raises what interrupts the wait."""
    while slot.words[slot.word] == _lib.IN_PROGRESS:
        status = _lib.wait(slot.handle)
        if slot.words[slot.word] == _lib.IN_PROGRESS:
            raise _lib.error(status)
    if slot.words[slot.word] == _lib.OK:
        return None
    return _lib.error(_lib.wait(slot.handle))


def _output(handle: int, array: np.ndarray) -> np.ndarray:
    address, shape = _lib.output(handle, array.ndim)
    output = np.empty(shape, array.dtype)
    if address is not None and output.nbytes:
        ctypes.memmove(output.ctypes.data, address, output.nbytes)
    return output
