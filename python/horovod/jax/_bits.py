"""Arrays of types that the engine does not know, as arrays of known types with the same bits.

Operations that only move data accept any type of whole bytes: unsigned integers, complex numbers, keys of
``jax.random``. Complex numbers can also be added, because they are pairs.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp

from horovod.common import _facts, _lib
from horovod.jax import _library

_BY_SIZE = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.int32, 8: jnp.int64}
_REDUCTIONS = {_lib.ALLREDUCE: "allreduce", _lib.REDUCESCATTER: "reducescatter"}


class Encoded(NamedTuple):
    """An array that the engine accepts, with the same rows, and the function that restores the original type."""

    array: Any
    decode: Callable[[Any], Any]


def _same(array: Any) -> Any:
    return array


def encode(array: Any, kind: int, reduce_op: int) -> Encoded:
    """``array``, which may be a tracer, for an operation of this kind. Raises ValueError for a type that it refuses."""
    dtype = array.dtype
    if dtype.name in _facts.reduced_types() or kind in _REDUCTIONS and _combined_on_gpu(dtype):
        return Encoded(array, _same)
    if jnp.issubdtype(dtype, jax.dtypes.prng_key) and kind not in _REDUCTIONS:
        return _key(array, kind, reduce_op)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        if kind in _REDUCTIONS and reduce_op not in (_lib.AVERAGE, _lib.SUM):
            raise ValueError(f"Arrays of type {dtype} are not supported with this op: use Average or Sum.")
        pairs = jnp.stack([array.real, array.imag], axis=-1)
        return Encoded(pairs, lambda pairs: jax.lax.complex(pairs[..., 0], pairs[..., 1]))
    if kind in _REDUCTIONS:
        raise ValueError(
            f"Arrays of type {dtype} are not supported in {_REDUCTIONS[kind]}: convert them first, for instance by "
            "array.astype(jnp.int32)."
        )
    if not _of_whole_bytes(dtype):
        raise ValueError(f"Arrays of type {dtype} are not supported.")
    bits = jax.lax.bitcast_convert_type(array, _BY_SIZE[dtype.itemsize])
    return Encoded(bits, lambda bits: jax.lax.bitcast_convert_type(bits, dtype))


def _combined_on_gpu(dtype: Any) -> bool:
    """Whether NCCL may combine what host memory cannot: floats of 8 bits."""
    return dtype.name in _facts.element_types() and _library.platform() == "cuda"


def _of_whole_bytes(dtype: Any) -> bool:
    describe = jnp.iinfo if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo
    return dtype.itemsize in _BY_SIZE and describe(dtype).bits == 8 * dtype.itemsize


def _key(keys: Any, kind: int, reduce_op: int) -> Encoded:
    data, implementation = encode(jax.random.key_data(keys), kind, reduce_op), jax.random.key_impl(keys)
    return Encoded(data.array, lambda bits: jax.random.wrap_key_data(data.decode(bits), impl=implementation))
