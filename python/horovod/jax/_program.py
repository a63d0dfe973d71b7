"""In which order XLA runs the collectives of a program.

XLA for CUDA gives a device its steps one after the other, in an order of its own, and a collective holds up the steps
after it until the other ranks have come. So all ranks need one order, and it is the source's: each collective of a list
of steps returns one byte more, of no value, which the next one has as an argument.

XLA for the CPU is to run independent collectives side by side, so that ranks may have them in any order. It may keep a
collective from starting until another one has ended, in two ways:

- It runs a short list of steps one by one.
- It puts several arrays into one place in memory, one after the other. A step then waits for the earlier user of its
  place.

If another rank began with the collective that may not start here, both ranks would wait for ever. So a list of steps
with independent collectives gets further steps that do nothing: enough of them to make XLA run the list as a graph; and
a last step that uses all arrays of these collectives, so that each array keeps its place until then.
"""

from __future__ import annotations

import itertools
from typing import Any, Sequence

import jax
import numpy as np
from jax.interpreters import mlir

from horovod.jax import _library

# XLA runs up to 8 steps, or steps with no array above 512 bytes, one after the other.
_PADS = 8
_PAD = jax.core.ShapedArray((1024,), np.dtype(np.uint8))

ORDER = jax.core.ShapedArray((1,), np.dtype(np.uint8))


class Program:
    """The state of a module while it is lowered. The number distinguishes programs in this process."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self._blocks: list[_Steps] = []

    @classmethod
    def of(cls, context: Any) -> Program:
        """The Program of the module to which ``context``, of a rule for lowering, belongs."""
        kept = context.module_context.keepalives
        for thing in kept:
            if isinstance(thing, cls):
                return thing
        kept.append(cls())
        return kept[-1]

    def here(self) -> _Steps:
        """The steps that are being lowered."""
        block = mlir.ir.InsertionPoint.current.block
        for steps in self._blocks:
            if steps.block == block:
                return steps
        self._blocks.append(_Steps(block))
        return self._blocks[-1]


class _Steps:
    """The steps of one function, or of one body of a loop, that have been lowered so far."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self._collectives: dict[Any, list[tuple[Any, Any]]] = {}  # with their arrays and the arrays' types
        self._apart: dict[Any, None] = {}  # collectives that do not depend on one another, in the program's order
        self._hold: Any = None  # the step that uses the arrays of these
        self.order: Any = None  # for CUDA: the ORDER that the last collective returns
        self._before: dict[Any, frozenset[Any]] = {}  # collectives that a step depends on

    def add(self, context: Any, operands: Sequence[Any], results: Sequence[Any]) -> None:
        """Note a collective, which has just been lowered."""
        collective = results[0].owner
        before = self._depends(collective)
        others = [other for other in self._collectives if other not in before]
        self._collectives[collective] = [*zip(operands, context.avals_in), *zip(results, context.avals_out)]
        if not others:
            return
        self._apart.update(dict.fromkeys([*others, collective]))
        if self._hold is not None:
            self._hold.erase()
        else:
            last: list[Any] = []
            for _ in range(_PADS):  # each depends on the one before, so XLA wakes no thread for them
                last = [(_pad(context, last), _PAD)]
        arrays = [array for other in self._apart for array in self._collectives[other]]
        self._hold = _pad(context, arrays).owner

    def _depends(self, collective: Any) -> frozenset[Any]:
        """The collectives of this sequence whose results ``collective`` needs, by any way through this block."""
        stack = [collective]
        while stack:
            operation = stack[-1]
            if operation in self._before:
                stack.pop()
                continue
            needs = [value.owner for value in operation.operands if not isinstance(value.owner, mlir.ir.Block)]
            unknown = [need for need in needs if need not in self._before]
            if unknown:
                stack += unknown
                continue
            found = frozenset().union(*(self._before[need] for need in needs))
            self._before[operation] = found.union(need for need in needs if need in self._collectives)
            stack.pop()
        return self._before[collective]


def _pad(context: Any, arrays: Sequence[tuple[Any, Any]]) -> Any:
    """A step that uses ``arrays`` and does nothing."""
    lower = jax.ffi.ffi_lowering(_library.PAD, has_side_effect=True)
    types = [abstract for _, abstract in arrays]
    (result,) = lower(context.replace(avals_in=types, avals_out=[_PAD]), *(value for value, _ in arrays))
    return result
