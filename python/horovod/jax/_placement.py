"""Where arrays are, and so how they travel outside of compiled programs."""

from __future__ import annotations

from typing import Any, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import _lib
from horovod.jax import _library


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


def beside(array: Any, values: np.ndarray) -> jax.Array:
    """An array of ``values`` on the one device of ``array``; on the default device if that has none, or several.

    On another device than the default one it is committed if ``array`` is.
    """
    devices, result = _devices([array]), jnp.asarray(values)
    if len(devices) != 1 or devices == result.devices():
        return result
    device = devices.pop()
    if getattr(array, "committed", getattr(array, "_committed", True)):
        return jax.device_put(result, device)
    with jax.default_device(device):
        return jnp.asarray(values)


def _devices(arrays: Sequence[Any]) -> set[Any]:
    return {device for array in arrays if isinstance(array, jax.Array) for device in array.devices()}
