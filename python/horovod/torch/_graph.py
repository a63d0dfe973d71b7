"""The collectives inside graphs of torch.compile.

If PyTorch has ``torch.library.custom_op`` (2.4), each collective is an opaque operation ``horovod::<name>`` of such a
graph: it knows the shapes of its results and its gradient, and runs like the call outside a graph. A call that cannot
be in a graph, because its result is a handle or depends on the job, runs between two graphs: see
:func:`between_graphs`. A graph runs its collectives one after the other, in the program's order.

An operation takes the engine's arguments: a process set is its number, and a name of None is numbered when it runs.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, TypeVar

import torch

from horovod.common import _facts, _job, _lib
from horovod.common._reduce_ops import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import is_compiling
from horovod.torch._operation import rows_and_splits
from horovod.torch._submission import empty_share, submit, submit_group, synchronize

F = TypeVar("F", bound=Callable[..., Any])

# Whether PyTorch traces the caller, and has the operations for graphs (2.4 and later).
in_graph: Callable[[], bool] = is_compiling if hasattr(torch.library, "custom_op") else lambda: False


def _set(number: int) -> ProcessSet:
    if number == 0:
        return global_process_set
    process_set = ProcessSet.__new__(ProcessSet)
    process_set.process_set_id = number
    return process_set


def _size(number: int) -> int:
    member = _lib.rank_and_size(number)
    return 1 if member is None else member[1]


# The work of each operation when a graph runs. The compiler may pass tensors of any memory format.


def _allreduce(
    tensor: torch.Tensor, name: Optional[str], op: int, prescale: float, postscale: float, wire: int, set_id: int
) -> torch.Tensor:
    output = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    handle = submit(
        "allreduce", tensor.contiguous(), output, name, _set(set_id), True, op, prescale, postscale, wire=wire
    )
    return synchronize(handle)


def _grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    name: Optional[str],
    op: int,
    prescale: float,
    postscale: float,
    wires: Sequence[int],
    set_id: int,
) -> list[torch.Tensor]:
    outputs = [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in tensors]
    inputs = [t.contiguous() for t in tensors]
    handle = submit_group("allreduce", inputs, outputs, name, _set(set_id), True, op, prescale, postscale, wires)
    return synchronize(handle)


def _allgather(tensor: torch.Tensor, name: Optional[str], set_id: int) -> torch.Tensor:
    return synchronize(submit("allgather", tensor.contiguous(), None, name, _set(set_id), True))


def _own_rows(tensor: torch.Tensor, rows: int, set_id: int) -> torch.Tensor:
    """This rank's part of the average of ``tensor``, which has all ranks' rows, ``rows`` of them this rank's."""
    averaged = _allreduce(tensor, None, Average, 1.0, 1.0, 0, set_id)
    counts = _allgather(torch.tensor([rows], device="cpu"), None, set_id)
    member = _lib.rank_and_size(set_id)
    start = int(counts[: member[0] if member else 0].sum())
    return averaged.narrow(0, start, rows).clone()


def _broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str], set_id: int) -> torch.Tensor:
    output = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    handle = submit("broadcast", tensor.contiguous(), output, name, _set(set_id), True, root_rank=root_rank)
    return synchronize(handle)


def _alltoall(
    tensor: torch.Tensor, splits: Optional[torch.Tensor], name: Optional[str], set_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [] if splits is None else splits.tolist()
    handle = submit("alltoall", tensor.contiguous(), None, name, _set(set_id), True, get=rows_and_splits, splits=rows)
    return synchronize(handle)


def _alltoall_back(tensor: torch.Tensor, received: torch.Tensor, rows: int, set_id: int) -> torch.Tensor:
    """The way back for rows that came by an alltoall: ``rows`` rows, with zeros for those that were not sent."""
    returned, _ = _alltoall(tensor, received, None, set_id)
    if returned.shape[0] < rows:
        return torch.cat((returned, returned.new_zeros((rows - returned.shape[0], *returned.shape[1:]))))
    return returned


def _reducescatter(
    tensor: torch.Tensor, name: Optional[str], op: int, prescale: float, postscale: float, set_id: int
) -> torch.Tensor:
    process_set, tensor = _set(set_id), tensor.contiguous()
    output = empty_share(tensor, process_set)
    return synchronize(submit("reducescatter", tensor, output, name, process_set, True, op, prescale, postscale))


def _gather_shares(tensor: torch.Tensor, rows: int, set_id: int) -> torch.Tensor:
    """An allgather whose result is known to have ``rows`` rows: the gradient of a reducescatter."""
    return _allgather(tensor, None, set_id)


_REDUCE = "int op, float prescale, float postscale"
_SCHEMAS = {
    _allreduce: f"(Tensor tensor, str? name, {_REDUCE}, int wire, int set_id) -> Tensor",
    _grouped_allreduce: f"(Tensor[] tensors, str? name, {_REDUCE}, int[] wires, int set_id) -> Tensor[]",
    _allgather: "(Tensor tensor, str? name, int set_id) -> Tensor",
    _own_rows: "(Tensor tensor, SymInt rows, int set_id) -> Tensor",
    _broadcast: "(Tensor tensor, int root_rank, str? name, int set_id) -> Tensor",
    _alltoall: "(Tensor tensor, Tensor? splits, str? name, int set_id) -> (Tensor, Tensor)",
    _alltoall_back: "(Tensor tensor, Tensor received, SymInt rows, int set_id) -> Tensor",
    _reducescatter: f"(Tensor tensor, str? name, {_REDUCE}, int set_id) -> Tensor",
    _gather_shares: "(Tensor tensor, SymInt rows, int set_id) -> Tensor",
}

# The shapes of the results, for the compiler.


def _same_shape(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    return tensor.new_empty(tensor.shape)


def _same_shapes(tensors: Sequence[torch.Tensor], *_: Any) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in tensors]


def _of_unknown_rows(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    rows = torch.library.get_ctx().new_dynamic_size()
    return tensor.new_empty((rows, *tensor.shape[1:]))


def _of_rows(tensor: torch.Tensor, rows: int, *_: Any) -> torch.Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


def _of_returned_rows(tensor: torch.Tensor, received: torch.Tensor, rows: int, *_: Any) -> torch.Tensor:
    return tensor.new_empty((rows, *tensor.shape[1:]))


def _rows_and_counts(
    tensor: torch.Tensor, splits: Optional[torch.Tensor], name: Optional[str], set_id: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return _of_unknown_rows(tensor), torch.empty(_size(set_id), dtype=torch.int32, device="cpu")


def _share(
    tensor: torch.Tensor, name: Optional[str], op: int, prescale: float, postscale: float, set_id: int
) -> torch.Tensor:
    return tensor.new_empty((_facts.symbolic_share(tensor.shape[0], set_id), *tensor.shape[1:]))


_SHAPES = {
    _allreduce: _same_shape,
    _grouped_allreduce: _same_shapes,
    _allgather: _of_unknown_rows,
    _own_rows: _of_rows,
    _broadcast: _same_shape,
    _alltoall: _rows_and_counts,
    _alltoall_back: _of_returned_rows,
    _reducescatter: _share,
    _gather_shares: _of_rows,
}

# The gradients; they equal those outside graphs.


def _keep_allreduce(ctx: Any, inputs: tuple, output: Any) -> None:
    _, _, ctx.op, ctx.prescale, ctx.postscale, ctx.wire, ctx.set_id = inputs


def _allreduce_gradient(ctx: Any, grad: torch.Tensor) -> tuple:
    reduced = allreduce(grad, None, ctx.op, ctx.prescale, ctx.postscale, ctx.wire, ctx.set_id)
    return (reduced, *[None] * 6)


def _grouped_allreduce_gradient(ctx: Any, grads: Sequence[torch.Tensor]) -> tuple:
    reduced = grouped_allreduce(list(grads), None, ctx.op, ctx.prescale, ctx.postscale, ctx.wire, ctx.set_id)
    return (reduced, *[None] * 6)


def _keep_allgather(ctx: Any, inputs: tuple, output: Any) -> None:
    tensor, _, ctx.set_id = inputs
    ctx.rows = tensor.shape[0]


def _allgather_gradient(ctx: Any, grad: torch.Tensor) -> tuple:
    return own_rows(grad, ctx.rows, ctx.set_id), None, None


def _keep_broadcast(ctx: Any, inputs: tuple, output: Any) -> None:
    _, ctx.root_rank, _, ctx.set_id = inputs


def _broadcast_gradient(ctx: Any, grad: torch.Tensor) -> tuple:
    averaged = allreduce(grad, None, Average, 1.0, 1.0, 0, ctx.set_id)
    return averaged if _job.rank() == ctx.root_rank else torch.zeros_like(averaged), None, None, None


def _keep_alltoall(ctx: Any, inputs: tuple, output: Any) -> None:
    tensor, _, _, ctx.set_id = inputs
    ctx.rows = tensor.shape[0]
    ctx.save_for_backward(output[1])


def _alltoall_gradient(ctx: Any, grad: torch.Tensor, _: Any) -> tuple:
    (received,) = ctx.saved_tensors
    return alltoall_back(grad, received, ctx.rows, ctx.set_id), None, None, None


def _keep_reducescatter(ctx: Any, inputs: tuple, output: Any) -> None:
    tensor, _, op, prescale, postscale, ctx.set_id = inputs
    ctx.rows = tensor.shape[0]
    ctx.factor = prescale * postscale * (_size(ctx.set_id) if op == Sum else 1)


def _reducescatter_gradient(ctx: Any, grad: torch.Tensor) -> tuple:
    return (gather_shares(grad * ctx.factor, ctx.rows, ctx.set_id), *[None] * 5)


_GRADIENTS = {
    _allreduce: (_allreduce_gradient, _keep_allreduce),
    _grouped_allreduce: (_grouped_allreduce_gradient, _keep_allreduce),
    _allgather: (_allgather_gradient, _keep_allgather),
    _broadcast: (_broadcast_gradient, _keep_broadcast),
    _alltoall: (_alltoall_gradient, _keep_alltoall),
    _reducescatter: (_reducescatter_gradient, _keep_reducescatter),
}


# A compiler that makes CUDA graphs leaves the operations out of them, if it knows how.
_UNSAFE = getattr(getattr(torch, "Tag", None), "cudagraph_unsafe", None)
_TAGS: dict[str, Any] = {} if _UNSAFE is None else {"tags": [_UNSAFE]}  # PyTorch 2.8 to 2.10 take no single one


def _operation(function: F) -> F:
    """The operation of a graph that runs ``function``; ``function`` itself if PyTorch has no such operations."""
    if in_graph is not is_compiling:
        return function
    name = f"horovod::{function.__name__.lstrip('_')}"
    operation = torch.library.custom_op(name, function, mutates_args=(), schema=_SCHEMAS[function], **_TAGS)
    operation.register_fake(_SHAPES[function])
    if function in _GRADIENTS:
        gradient, keep = _GRADIENTS[function]
        operation.register_autograd(gradient, setup_context=keep)
    return operation


allreduce = _operation(_allreduce)
grouped_allreduce = _operation(_grouped_allreduce)
allgather = _operation(_allgather)
own_rows = _operation(_own_rows)
broadcast = _operation(_broadcast)
alltoall = _operation(_alltoall)
alltoall_back = _operation(_alltoall_back)
reducescatter = _operation(_reducescatter)
gather_shares = _operation(_gather_shares)
