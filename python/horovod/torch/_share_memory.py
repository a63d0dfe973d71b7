"""The memory of sharded optimizers on this rank."""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any, Iterable, Iterator

import torch

from horovod.common import basics
from horovod.torch._compiling import never_trace
from horovod.torch.mpi_ops import rank, size

_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()  # those that have stepped


@contextlib.contextmanager
def enough_memory(elements: int) -> Iterator[None]:
    """Let an allocation that fails say that it was for the state of this rank's share, of so many elements."""
    try:
        yield
    except (MemoryError, RuntimeError) as e:
        if not (isinstance(e, MemoryError) or "allocate" in str(e)):
            raise
        raise MemoryError(
            f"rank {rank()} of {size()} has too little memory to step its share of {elements} elements of a sharded "
            f"optimizer: {e}"
        ) from e


def note(optimizer: Any) -> None:
    """Count the memory of ``optimizer`` from now on, in ``hvd.metrics()``. Its first rank prints one line about it."""
    if optimizer in _optimizers:
        return
    _optimizers.add(optimizer)
    basics.more_metrics["sharded_optimizers"] = lambda: [counted(one) for one in list(_optimizers)]
    counts = counted(optimizer)
    if optimizer._dealt[0] == 0 and counts["ranks"] > 1:
        kept = counts["state_bytes"] + counts["master_bytes"]
        print(
            f"horovod: {counts['optimizer']} is sharded over {counts['ranks']} ranks: rank {rank()} keeps {kept:,} "
            f"bytes of state, for {counts['elements']:,} of {counts['all_elements']:,} elements, beside "
            f"{counts['parameter_bytes']:,} bytes of parameters and {counts['gradient_bytes']:,} of gradients",
            file=sys.stderr,
            flush=True,
        )


def counted(optimizer: Any) -> dict[str, Any]:
    """The bytes that this rank has for an optimizer: only its own share of state and masters."""
    parameters = optimizer._parameters()
    gradients = [p.grad for p in parameters if p.grad is not None and not p.grad.is_sparse]
    state = [value for p in parameters if p in optimizer.state for value in optimizer.state[p].values()]
    shares = [optimizer._share(p) for p in parameters]
    return {
        "optimizer": type(optimizer).__name__,
        "process_set": optimizer.process_set.process_set_id,
        "ranks": optimizer._dealt[1],
        "elements": sum(share.elements for share in shares),
        "all_elements": sum(p.numel() for p in parameters),
        "parameter_bytes": _bytes(parameters),
        "gradient_bytes": _bytes(gradients),
        "state_bytes": _bytes(value for value in state if isinstance(value, torch.Tensor)),
        "master_bytes": _bytes(share.master for share in shares if share.master is not None),
    }


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


never_trace(__name__)
