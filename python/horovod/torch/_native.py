"""The compiled short way to the engine for tensors: see :mod:`horovod.common._extension` and ``shim/python``."""

from __future__ import annotations

import threading
from typing import Any

import torch

from horovod.common import _cells, _extension, _lib


def find(
    pool: _cells.Pool,
    kinds: dict[str, int],
    names: dict[str, Any],
    group: type,
    get: Any,
    alltoall_get: Any,
    taking: threading.Lock,
    dtypes: Any,
) -> Any:
    """The extension, ready for use, or None where there is none.

    ``pool`` is that of operations, ``names`` the globals of the module with ``_handles`` and ``_handle_map``, ``group``
    the class of groups, ``get`` the ``get`` of operations that the extension submits, ``alltoall_get``
    that of alltoalls, ``taking`` the lock of threads that change
    operations of ``_handle_map``. ``dtypes`` has the engine's number of a ``torch.dtype``.
    """
    module = _extension.load()
    if module is None:
        return None
    tensor, template = torch.Tensor, torch.empty(0, dtype=torch.int32, device="cpu")
    module.setup(
        _lib.WAIT_SLICE_MS,
        pool.cell_class, pool.free, pool.grow, kinds, names, names["_handle_map"], group, get, alltoall_get, taking,
        (tensor, torch.nn.Parameter), template, "untyped_storage" if hasattr(tensor, "untyped_storage") else "_storage",
        getattr(tensor, "__dlpack_c_exchange_api__", None), dtypes,
        getattr(torch._C, "_len_torch_dispatch_stack", None),
    )  # fmt: skip
    module.setup_made(tensor.new_empty, template)
    return module
