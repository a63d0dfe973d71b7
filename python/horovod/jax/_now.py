"""Collectives outside of compiled programs, which block.

Arrays in host memory are the engine's to use as they are. Arrays of a GPU with CUDA become arguments of a small
compiled program, so that they travel as in other compiled programs. XLA compiles one for each name, operation and
shapes. They are copied through host memory instead:

- if the engine does not take the device's memory (``gorovod_takes_device``)
- in an allgather, because a compiled program must know how many rows the other ranks have
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Optional, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError
from horovod.jax import _host, _library
from horovod.jax._host import Operation

_Shapes = Optional[tuple[tuple[int, ...], ...]]  # of the results; None if they are those of the arrays

_PROGRAMS = 1024  # that are kept

# The errors that handlers name in their messages, since JAX has no way to choose the class.
_ERRORS = {"HorovodInternalError: ": HorovodInternalError, "ValueError: ": ValueError}


def run(
    kind: int, arrays: Sequence[Any], shapes: Optional[Sequence[tuple[int, ...]]], name: Optional[str], **of: Any
) -> list[Any]:
    """The results for ``arrays``, in JAX's arrays; ``shapes`` are theirs, if they are others.

    ``of`` are the other fields of an Operation. Raises as ``_lib.error`` says.
    """
    if kind != _lib.ALLGATHER and takes(arrays):
        return run_compiled(Operation(kind, name or "", **of), None if shapes is None else tuple(shapes), arrays)
    host = [np.asarray(array) for array in arrays]
    return [jnp.asarray(result) for result in _host.run(kind, host, name, flags=flags(arrays), **of)]


def flags(arrays: Sequence[Any]) -> int:
    """The flags of an operation on copies of the arrays in host memory."""
    platforms = {_library.platform(device) for device in _devices(arrays)}
    return _library.flags(platforms.pop()) if len(platforms) == 1 else 0


def takes(arrays: Sequence[Any]) -> bool:
    """Whether the arrays are on one device of CUDA, and the engine takes arrays there as they are."""
    devices = _devices(arrays)
    return (
        len(devices) == 1
        and _library.platform(*devices) == "cuda"
        and _library.usable("cuda")
        and bool(_lib.load().gorovod_takes_device(devices.pop().local_hardware_id))
    )


def _devices(arrays: Sequence[Any]) -> set[Any]:
    return {device for array in arrays if isinstance(array, jax.Array) for device in array.devices()}


def run_compiled(operation: Operation, shapes: _Shapes, arrays: Sequence[Any]) -> list[Any]:
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
def _program(operation: Operation, shapes: _Shapes) -> Callable[..., list[Any]]:
    from horovod.jax import _collective  # imported here, because older versions of JAX cannot import it

    return jax.jit(lambda *arrays: _collective.bind(operation, arrays, shapes))
