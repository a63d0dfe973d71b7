"""The compiled short way to the engine for tensors: see :mod:`horovod.common._extension` and ``shim/python``."""

from __future__ import annotations

from typing import Any, Callable

import torch

from horovod.common import _cells, _extension, _lib


def find(
    pool: _cells.Pool,
    kinds: dict[str, int],
    names: dict[str, Any],
    group: type,
    get: Any,
    alltoall_get: Any,
    locked: Callable[[], bool],
    dtypes: Any,
) -> Any:
    """The extension, ready for use, or None where there is none.

    ``pool`` is that of operations, ``names`` the globals of the module with ``_handles`` and ``_handle_map``, ``group``
    the class of groups, ``get`` the ``get`` of operations that the extension submits, ``alltoall_get``
    that of alltoalls, ``locked`` whether another thread
    is changing operations of ``_handle_map``. ``dtypes`` has the engine's number of a ``torch.dtype``.
    """
    module = _extension.load()
    if module is None:
        return None
    tensor = torch.Tensor
    storage = getattr(tensor, "untyped_storage", None) or tensor._storage
    module.setup(
        _lib.WAIT_SLICE_MS,
        pool.cell_class, pool.free, pool.grow, kinds, names, names["_handle_map"], group, get, alltoall_get, locked,
        (tensor, torch.nn.Parameter), (tensor.data_ptr, tensor.is_neg, tensor.is_contiguous, storage),
        getattr(tensor, "__dlpack_c_exchange_api__", None), dtypes,
    )  # fmt: skip
    module.setup_made(tensor.new_empty, torch.empty(0, dtype=torch.int32, device="cpu"))
    return module
