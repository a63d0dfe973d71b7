"""The memory of a sharded optimizer on this rank."""

from __future__ import annotations

import contextlib
from typing import Iterator

from horovod.torch._compiling import never_trace
from horovod.torch.mpi_ops import rank, size


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


never_trace(__name__)
