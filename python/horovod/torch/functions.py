"""Makes ranks equal at the start: sends parameters, optimizer state and objects from one rank to all."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Union

import torch

from horovod.common import _pickling
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import never_trace
from horovod.torch.mpi_ops import allgather, broadcast_, broadcast_async_, rank, synchronize


def broadcast_parameters(
    params: Union[Mapping[str, torch.Tensor], Iterable[Union[torch.Tensor, tuple[str, torch.Tensor]]]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite ``params`` in place with those of one rank, on all ranks of ``process_set``. Blocks.

    Args:
        params: a dict from name to tensor, such as ``model.state_dict()``, or a list of (name, tensor) pairs or
            tensors, such as ``list(model.named_parameters())``; with the same names, shapes and dtypes on all ranks.
        root_rank: the rank whose parameters all ranks get.
        process_set: the ranks that take part.

    Raises:
        ValueError: ``params`` is anything else, a generator included.
        HorovodInternalError: as :func:`broadcast`.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, list):
        named = [p if isinstance(p, tuple) else (None, p) for p in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    if any(len(item) != 2 for item in named):
        raise ValueError("invalid params: each must be a tensor, or a pair of name and tensor")
    for name, p in named:
        if not isinstance(p, torch.Tensor):
            raise ValueError(f"invalid params: {name!r} is of type {type(p)}, not a tensor")
    _broadcast_tensors(named, root_rank, process_set)


def _broadcast_tensors(
    named: Iterable[tuple[Optional[str], torch.Tensor]], root_rank: int, process_set: ProcessSet
) -> None:
    """Broadcast all tensors in place at once, and wait for all of them."""
    pending = []
    for name, tensor in named:
        tensor = tensor.detach()
        # A dense tensor of another memory format, such as channels_last, goes through a contiguous copy.
        contiguous = tensor.contiguous()
        pending.append((broadcast_async_(contiguous, root_rank, name, process_set), contiguous, tensor))
    for handle, contiguous, tensor in pending:
        synchronize(handle)
        if contiguous is not tensor:
            tensor.copy_(contiguous)


class _Placeholder(NamedTuple):
    """Represents a tensor in the description of an optimizer's state."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    with_parameter: bool  # on the parameter's device; otherwise in host memory


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Optional[torch.nn.Module] = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite hyper-parameters and state of ``optimizer`` with those of one rank. Blocks.

    All ranks of ``process_set`` call this. Their optimizers must have the same parameter groups; only the root's needs
    state. This runs no step, so a fresh optimizer stays fresh and parameters stay as they are. As in Horovod, an
    optimizer without state has gradients of zeros afterwards: sparse ones for SparseAdam, and for weights of ``model``
    whose layers are ``sparse``.

    Of a sharded optimizer each rank gets its share of the state that the root has loaded. If the root has stepped
    since, each rank keeps its share, and only the hyper-parameters are sent.

    Args:
        optimizer: the optimizer to overwrite.
        root_rank: the rank whose state all ranks get.
        model: the model whose layers tell which gradients are sparse.
        process_set: the ranks that take part.

    Raises:
        ValueError: the optimizer is LBFGS, or the groups differ from the root's; or the optimizer is sharded, and
            ranks have state of different parameters.

    Example:
        >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
        >>> hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if hasattr(optimizer, "_broadcast_state"):
        optimizer._broadcast_state(root_rank, process_set)
        return
    groups = optimizer.param_groups
    parameters = [p for group in groups for p in group["params"]]
    if not optimizer.state:
        _zero_gradients(parameters, _with_sparse_gradients(optimizer, model))
    is_root = rank() == root_rank
    tensors: list[torch.Tensor] = []
    description = None
    if is_root:
        description = (
            [len(group["params"]) for group in groups],
            [_describe(_options(group), groups[i]["params"], tensors) for i, group in enumerate(groups)],
            [_describe(optimizer.state.get(p), [p], tensors) for p in parameters],
        )
    description = broadcast_object(description, root_rank, "broadcast_optimizer_state", process_set)
    if not is_root:
        lengths, options, states = description
        if lengths != [len(group["params"]) for group in groups]:
            raise ValueError(
                f"the optimizer has {[len(group['params']) for group in groups]} parameters in its groups, "
                f"that of rank {root_rank} has {lengths}"
            )
        for group, theirs in zip(groups, options):
            group.update(_rebuild(theirs, _options(group), group["params"], tensors))
        for p, theirs in zip(parameters, states):
            if theirs is None:
                optimizer.state.pop(p, None)
            else:
                optimizer.state[p] = _rebuild(theirs, optimizer.state.get(p), [p], tensors)
    named = ((f"optimizer_state.{i}", tensor) for i, tensor in enumerate(tensors))
    _broadcast_tensors(named, root_rank, process_set)


def _with_sparse_gradients(optimizer: torch.optim.Optimizer, model: Optional[torch.nn.Module]) -> set[torch.Tensor]:
    """The parameters of ``optimizer`` whose gradients are sparse tensors."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return {p for group in optimizer.param_groups for p in group["params"]}
    layers = model.modules() if model is not None else ()
    return {layer.weight for layer in layers if getattr(layer, "sparse", False) is True and hasattr(layer, "weight")}


def _zero_gradients(parameters: Iterable[torch.Tensor], sparse: set[torch.Tensor]) -> None:
    """Give each trainable one of ``parameters`` a gradient of zeros."""
    for p in parameters:
        if p.requires_grad and p in sparse:
            rows = torch.empty(0, *p.shape[1:], dtype=p.dtype, device=p.device)
            places = torch.empty(1, 0, dtype=torch.int64, device=p.device)
            p.grad = torch.sparse_coo_tensor(places, rows, p.shape, device=p.device)
        elif p.requires_grad:
            p.grad = torch.zeros_like(p)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _map_state(value: Any, mine: Any, leaf: Callable[[Any, Any], Any]) -> Any:
    """Rebuild nested dicts, lists and tuples with ``leaf(value, mine)`` for every other value.

    ``mine`` is the value at the same place in this rank's state, or None.
    """
    if isinstance(value, _Placeholder):
        return leaf(value, mine)
    if isinstance(value, Mapping):
        mine_of = mine if isinstance(mine, Mapping) else {}
        return {key: _map_state(item, mine_of.get(key), leaf) for key, item in value.items()}
    if type(value) in (list, tuple):
        known = mine if isinstance(mine, type(value)) and len(mine) == len(value) else [None] * len(value)
        return type(value)(_map_state(item, old, leaf) for item, old in zip(value, known))
    return leaf(value, mine)


def _describe(state: Any, parameters: list[torch.Tensor], tensors: list[torch.Tensor]) -> Any:
    """``state`` with placeholders instead of its tensors, which are appended to ``tensors``."""

    def leaf(value: Any, mine: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors.append(value)
        with_parameter = value.device.type != "cpu" or all(p.device.type == "cpu" for p in parameters)
        return _Placeholder(tuple(value.shape), value.dtype, with_parameter)

    return _map_state(state, None, leaf)


def _rebuild(description: Any, mine: Any, parameters: list[torch.Tensor], tensors: list[torch.Tensor]) -> Any:
    """Undo :func:`_describe`, with this rank's tensors if they fit, else new ones; they are appended to ``tensors``."""

    def leaf(value: Any, old: Any) -> Any:
        if not isinstance(value, _Placeholder):
            return value
        device = parameters[0].device if value.with_parameter and parameters else torch.device("cpu")
        fits = isinstance(old, torch.Tensor) and (tuple(old.shape), old.dtype, old.device) == (*value[:2], device)
        tensors.append(old if fits else torch.empty(value.shape, dtype=value.dtype, device=device))
        return tensors[-1]

    return _map_state(description, mine, leaf)


def _to_bytes(obj: Any) -> torch.Tensor:
    content = _pickling.dumps(obj)
    tensor = torch.empty(len(content), dtype=torch.uint8, device="cpu")
    ctypes.memmove(tensor.data_ptr(), content, len(content))
    return tensor


def _from_bytes(tensor: torch.Tensor) -> Any:
    return _pickling.loads(ctypes.string_at(tensor.data_ptr(), tensor.numel()))


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Give all ranks of ``process_set`` the ``obj`` of one rank, pickled on the way. Blocks.

    Args:
        obj: any picklable object; only that of the root matters.
        root_rank: the rank whose object all ranks get.
        name: must be the same on all ranks, and not be in use at the time.
        process_set: the ranks that take part.

    Returns:
        The root's object. The root gets its own.

    Raises:
        HorovodInternalError: as :func:`broadcast`.

    Example:
        >>> hvd.broadcast_object({"epoch": 3}, root_rank=0)
        {'epoch': 3}
    """
    name = name or "broadcast_object"
    if rank() == root_rank:
        content = _to_bytes(obj)
        broadcast_(torch.tensor([content.numel()], device="cpu"), root_rank, name + ".sz", process_set)
        broadcast_(content, root_rank, name + ".t", process_set)
        return obj
    length = broadcast_(torch.tensor([0], device="cpu"), root_rank, name + ".sz", process_set)
    content = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    return _from_bytes(broadcast_(content, root_rank, name + ".t", process_set))


def broadcast_object_fn(
    root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Make a function that does the work of :func:`broadcast_object` with these arguments, any number of times.

    Args:
        root_rank, name, process_set: as for :func:`broadcast_object`.

    Returns:
        A function of one object.

    Example:
        >>> from_rank_0 = hvd.broadcast_object_fn(root_rank=0)
        >>> from_rank_0([1, 2])
        [1, 2]
    """
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Give all ranks of ``process_set`` the objects of all of them, pickled on the way. Blocks.

    Args:
        obj: any picklable object.
        name: must be the same on all ranks, and not be in use at the time.
        process_set: the ranks that take part.

    Returns:
        The objects, in the order of ranks.

    Raises:
        HorovodInternalError: as :func:`allgather`.

    Example:
        >>> hvd.allgather_object("rank 0")
        ['rank 0']
    """
    name = name or "allgather_object"
    content = _to_bytes(obj)
    lengths = allgather(torch.tensor([content.numel()], device="cpu"), name + ".sz", process_set)
    contents = allgather(content, name + ".t", process_set)
    return [_from_bytes(part) for part in contents.split(lengths.tolist())]


never_trace(__name__)
