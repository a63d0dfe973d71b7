"""Where arrays are, and so how they travel outside of compiled programs."""

from __future__ import annotations

from typing import Any, Sequence

import jax

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


def beside(array: Any, result: jax.Array) -> jax.Array:
    """``result`` on the one device of ``array``; as it is if that has no device, or several."""
    devices = _devices([array])
    return result if len(devices) != 1 or devices == result.devices() else jax.device_put(result, devices.pop())


def _devices(arrays: Sequence[Any]) -> set[Any]:
    return {device for array in arrays if isinstance(array, jax.Array) for device in array.devices()}
