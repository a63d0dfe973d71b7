"""Collectives outside of compiled programs, which block.

Arrays in host memory are the engine's to use as they are. Arrays of a GPU with CUDA become arguments of a small
compiled program, so that they travel as in other compiled programs. XLA compiles one for each name, operation and
shapes. They are copied through host memory instead:

- if the engine does not take the device's memory (``gorovod_takes_device``)
- in an allgather, because a compiled program must know how many rows the other ranks have
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from horovod.common import _lib
from horovod.jax import _host, _placement
from horovod.jax._host import Operation


def run(
    kind: int, arrays: Sequence[Any], shapes: Optional[Sequence[tuple[int, ...]]], name: Optional[str], **of: Any
) -> list[Any]:
    """The results for ``arrays``, in JAX's arrays; ``shapes`` are theirs, if they are others.

    ``of`` are the other fields of an Operation. Raises as ``_lib.error`` says.
    """
    if kind != _lib.ALLGATHER and _placement.takes(arrays):
        from horovod.jax import _collective  # imported here, because older versions of JAX cannot import it

        return _collective.run(Operation(kind, name or "", **of), None if shapes is None else tuple(shapes), arrays)
    host = [np.asarray(array) for array in arrays]
    results = _host.run(kind, host, name, flags=_placement.flags(arrays), **of)
    return [_placement.beside(array, result) for array, result in zip(arrays, results)]
