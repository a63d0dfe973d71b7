"""Collectives as operations of compiled programs: a primitive of JAX, which XLA runs by the handlers of ``_library``.

It has no effect in JAX's sense. With one, JAX would run Python for each call of a program, and would refuse it in
``vmap`` and ``jax.checkpoint``. Names match the calls of ranks instead, so XLA for the CPU may run independent ones in
any order and at the same time. XLA for CUDA runs them in the order of the source: see :mod:`._program`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError
from horovod.jax import _host, _library, _placement
from horovod.jax._host import Operation, run_as_expected
from horovod.jax._program import ORDER, Program

Shapes = Optional[tuple[tuple[int, ...], ...]]  # of the results; None if they equal those of the arrays

_PROGRAMS = 1024  # that are kept

# The errors that handlers name in their messages, since JAX has no way to choose the class.
_ERRORS = {"HorovodInternalError: ": HorovodInternalError, "ValueError: ": ValueError}

collective = Primitive("gorovod_collective")
collective.multiple_results = True


def bind(operation: Operation, arrays: Sequence[Any], shapes: Shapes) -> list[Any]:
    """The results of ``operation``, some of whose ``arrays`` are tracers."""
    return collective.bind(*arrays, operation=operation, shapes=shapes)


def run(operation: Operation, shapes: Shapes, arrays: Sequence[Any]) -> list[Any]:
    """Run ``operation`` as a compiled program of its own; the engine names it if it has no name."""
    for array in arrays:
        _host.dtype(array)
    with jax.ensure_compile_time_eval(), jax.disable_jit(False):  # what calls this may be traced, or not be compiled
        try:
            return jax.block_until_ready(_program(operation, shapes)(*arrays))
        except (jax.errors.JaxRuntimeError, ValueError) as e:
            for prefix, error in _ERRORS.items():
                _, found, reason = str(e).partition(prefix)
                if found:
                    raise error(reason) from None
            raise


@functools.lru_cache(maxsize=_PROGRAMS)
def _program(operation: Operation, shapes: Shapes) -> Callable[..., list[Any]]:
    return jax.jit(lambda *arrays: bind(operation, arrays, shapes))


def _impl(*arrays: Any, operation: Operation, shapes: Shapes) -> list[Any]:
    if _placement.takes(arrays):
        return run(operation, shapes, arrays)
    wanted = shapes or [a.shape for a in arrays]
    return [jax.numpy.asarray(a) for a in run_as_expected(operation, wanted, arrays, _placement.flags(arrays))]


def _abstract(*arrays: Any, operation: Operation, shapes: Shapes) -> list[Any]:
    return [a.update(shape=s, weak_type=False) for a, s in zip(arrays, shapes or [a.shape for a in arrays])]


collective.def_impl(_impl)
collective.def_abstract_eval(_abstract)


# Without this, JAX would remove a collective whose result the program does not use, and other ranks would wait for it.
pe.dce_rules[collective] = lambda used, equation: ([True] * len(equation.invars), equation)


def _call(context: Any, program: Program, operation: Operation, *operands: Any) -> Any:
    return jax.ffi.ffi_lowering(_library.COLLECTIVE, has_side_effect=True)(
        context,
        *operands,
        type=np.int64(operation.kind),
        name=operation.name,
        reduce_op=np.int64(operation.reduce_op),
        root_rank=np.int64(operation.root_rank),
        process_set=np.int64(operation.process_set_id),
        wire=np.int64(operation.wire),
        prescale=np.float64(operation.prescale),
        postscale=np.float64(operation.postscale),
        program=np.int64(program.number),
    )


def _lower(context: Any, *operands: Any, operation: Operation, shapes: Shapes) -> Any:
    program = Program.of(context)
    results = _call(context, program, operation, *operands)
    program.here().add(context, operands, results)
    return results


def _lower_for_cuda(context: Any, *operands: Any, operation: Operation, shapes: Shapes) -> Any:
    program = Program.of(context)
    steps = program.here()
    before = [] if steps.order is None else [steps.order]
    ordered = context.replace(
        avals_in=[*context.avals_in, *([ORDER] * len(before))], avals_out=[*context.avals_out, ORDER]
    )
    *results, steps.order = _call(ordered, program, operation, *operands, *before)
    return results


mlir.register_lowering(collective, _lower, platform="cpu", cacheable=False)
mlir.register_lowering(collective, _lower_for_cuda, platform="cuda", cacheable=False)


def _batch(arrays: Sequence[Any], axes: Sequence[Any], operation: Operation, shapes: Shapes) -> Any:
    """``jax.vmap``: one collective for the whole batch."""
    if operation.kind == _lib.ALLREDUCE and operation.reduce_op == _lib.ADASUM:
        raise NotImplementedError("an allreduce with Adasum cannot be batched: it would not keep the elements apart")
    if shapes is None:
        return bind(operation, arrays, None), axes
    # Rows stay the first dimension, and the batch becomes the second.
    moved = [a if axis is None else jax.numpy.moveaxis(a, axis, 1) for a, axis in zip(arrays, axes)]
    wider = tuple(s if axis is None else (s[0], a.shape[1], *s[1:]) for s, a, axis in zip(shapes, moved, axes))
    return bind(operation, moved, wider), [None if axis is None else 1 for axis in axes]


batching.primitive_batchers[collective] = lambda arrays, axes, **of: _batch(arrays, axes, **of)


def _differentiate(primals: Sequence[Any], tangents: Sequence[Any], operation: Operation, shapes: Shapes) -> Any:
    """Sums and averages are linear: the derivative is the same reduction, of the tangents."""
    results = bind(operation, primals, shapes)
    moving = [i for i, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)]
    changes: list[Any] = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    if moving:
        linear = operation.kind == _lib.ALLREDUCE and operation.reduce_op in (_lib.AVERAGE, _lib.SUM)
        derivative = operation._replace(name=f"{operation.name}.gradient")
        primitive = collective if linear else _undifferentiable
        some = None if shapes is None else tuple(shapes[i] for i in moving)
        found = primitive.bind(*(tangents[i] for i in moving), operation=derivative, shapes=some)
        for i, change in zip(moving, found):
            changes[i] = change
    return results, changes


def _transpose(cotangents: Sequence[Any], *arrays: Any, operation: Operation, shapes: Shapes) -> Any:
    if all(isinstance(cotangent, ad.Zero) for cotangent in cotangents):
        return [ad.Zero(array.aval.to_tangent_aval()) for array in arrays]
    return bind(operation, [ad.instantiate_zeros(cotangent) for cotangent in cotangents], shapes)


ad.primitive_jvps[collective] = lambda primals, tangents, **of: _differentiate(primals, tangents, **of)
ad.primitive_transposes[collective] = _transpose


# The derivative of an operation that has none. It fails only if a program needs it.
_undifferentiable = Primitive("gorovod_undifferentiable")
_undifferentiable.multiple_results = True
_undifferentiable.def_abstract_eval(_abstract)


def _refuse(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("only allreduces with Average and Sum are differentiable")


def _refuse_unless_zero(cotangents: Sequence[Any], *arrays: Any, **_: Any) -> Any:
    if all(isinstance(cotangent, ad.Zero) for cotangent in cotangents):
        return [ad.Zero(array.aval.to_tangent_aval()) for array in arrays]
    return _refuse()


_undifferentiable.def_impl(_refuse)
ad.primitive_transposes[_undifferentiable] = _refuse_unless_zero
mlir.register_lowering(_undifferentiable, _refuse)
