"""Adding up sparse tensors of all ranks."""

from __future__ import annotations

import contextlib
from typing import Callable, Optional

import torch

from horovod.common._reduce_ops import Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import between_graphs
from horovod.torch._result import Result
from horovod.torch._submission import submit


@between_graphs
def sparse_allreduce_async(
    tensor: torch.Tensor, name: Optional[str], op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start to add up sparse COO tensors of all ranks. Indices and values are gathered.

    Args:
        tensor: of layout ``torch.sparse_coo``; size, dtype and number of sparse dimensions must be the same on all
            ranks.
        name: the name by which ranks match their calls.
        op: Average; any other value means a sum.
        process_set: the ranks that take part.

    Returns:
        A function that waits for the sum and returns it. The sum is not coalesced.

    Raises:
        ValueError: the tensor has another layout; or as :func:`allreduce`.

    Example:
        >>> x = torch.sparse_coo_tensor([[1]], [5.0], (3,))
        >>> hvd.sparse_allreduce_async(x, name="x", op=hvd.Sum)().to_dense()
        tensor([0., 5., 0.])
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        kind = tensor.layout if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ValueError(f"sparse_allreduce needs a tensor of layout torch.sparse_coo, not {kind}")
    tensor = tensor.detach().coalesce()
    results = [
        Result(submit("allgather", part.contiguous(), None, part_name, process_set, wait=False, adds_up=adds_up))
        for part, part_name, adds_up in [
            (tensor.indices().t(), None if name is None else f"{name}.indices", False),
            (tensor.values(), None if name is None else f"{name}.values", True),
        ]
    ]

    def total() -> torch.Tensor:
        for result in results:
            with contextlib.suppress(Exception):
                result()  # both must end, even if the first fails
        indices, values = (result() for result in results)
        if op == Average:
            values = values / process_set.size()
        return torch.sparse_coo_tensor(indices.t(), values, tensor.size(), device=values.device)

    return total
