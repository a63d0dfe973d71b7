"""Collectives inside compiled programs: operations of XLA if it can run them, otherwise ordered callbacks."""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Any, Optional, Sequence

import jax
from jax.experimental import io_callback

from horovod.common import _facts, _lib
from horovod.jax import _host, _library
from horovod.jax._host import Operation

# Calls without a name are counted by process set and kind, because only the members of a set trace its calls.
_calls: dict[tuple[int, int], itertools.count] = collections.defaultdict(lambda: itertools.count(1))
_KINDS = {kind.number: name for name, kind in _facts.kinds().items()}


def run(
    kind: int, arrays: Sequence[Any], shapes: Optional[Sequence[tuple[int, ...]]], name: Optional[str], **of: Any
) -> list[Any]:
    """The results for ``arrays``, some of which are tracers. ``shapes`` are the results' shapes, if they differ.

    ``of`` are the other fields of an Operation. Raises ValueError for arrays of a type that no operation takes.
    """
    for array in arrays:
        _host.dtype(array)
    # Ranks match an operation by its place in the program, whenever the program runs.
    name = name or f"jax.traced.{_KINDS[kind]}.{next(_calls[of['process_set_id'], kind])}"
    operation = Operation(kind, name, **of)
    if _library.usable(_library.platform()):
        from horovod.jax import _collective  # imported here, because older versions of JAX cannot import it

        return _collective.bind(operation, arrays, None if shapes is None else tuple(shapes))
    if kind == _lib.ALLREDUCE:
        return _reduced_by_callback(operation, list(arrays))
    return _called_back(operation, arrays, shapes or [array.shape for array in arrays])


def _called_back(operation: Operation, arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    wanted = [jax.ShapeDtypeStruct(shape, array.dtype) for shape, array in zip(shapes, arrays)]
    call = functools.partial(_host.run_as_expected, operation, shapes, flags=_library.flags(_library.platform()))
    return io_callback(lambda *given: call(given), wanted, *arrays, ordered=True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reduced_by_callback(operation: Operation, arrays: list[Any]) -> list[Any]:
    return _called_back(operation, arrays, [array.shape for array in arrays])


def _forward(operation: Operation, arrays: list[Any]) -> tuple[list[Any], None]:
    return _reduced_by_callback(operation, arrays), None


def _backward(operation: Operation, _: None, gradients: list[Any]) -> tuple[list[Any]]:
    if operation.reduce_op not in (_lib.AVERAGE, _lib.SUM):
        raise NotImplementedError("only allreduces with Average and Sum are differentiable")
    return (_reduced_by_callback(operation._replace(name=f"{operation.name}.gradient"), gradients),)


_reduced_by_callback.defvjp(_forward, _backward)
