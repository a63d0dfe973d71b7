"""From PyTorch tensors to the engine and back.

:mod:`horovod.common._operations` describes the life of an operation. Its name is a *handle*, an int. The table
``_handle_map`` keeps the tensors alive until :func:`synchronize`, however the caller is interrupted, and also the
memory that they had at the submission, even if they get other memory meanwhile (``tensor.data = …``, ``set_``). PyTorch
cannot keep memory from being resized, which frees it: then :func:`synchronize` raises an error. A tensor whose memory
the engine cannot use goes through a copy, see :mod:`._staging`, and so does one whose memory does not hold its values
(see ``is_neg``).

A large output that the engine has made stays in place: the result is a tensor on that memory, which is freed with it.
Such a tensor is like any other, except that ``resize_`` to more elements is a RuntimeError, as with
``torch.from_numpy``.

Ranks match their operations by name: ``<op>.<name>``, or ``<op>.noname.<n>`` without a name, as in Horovod. The engine
counts by process set and kind of operation. So the members of a set must issue their unnamed operations of a kind in
the same order. After a join, all ranks count from 1 again, whatever they issued before.

The engine uses a GPU tensor in place if NCCL can carry it, see :mod:`._device_memory`; otherwise it is copied.
"""

from __future__ import annotations

import itertools
import numbers
import threading
from typing import Any, Callable, Optional, Sequence, Union

import torch

from horovod.common import _arguments, _cells, _facts, _lib, _operations, basics
from horovod.common.process_sets import ProcessSet
from horovod.torch import _native, _tracing
from horovod.torch._compiling import between_graphs, never_trace, traces_bytecode, untraced
from horovod.torch._device_memory import OnDevice
from horovod.torch._operation import (
    Group,
    Names,
    Operation,
    PlainGroup,
    about,
    output_of,
    plain_output_of,
    plain_rows_and_splits,
    rows_and_splits,
    storage_of,
)  # fmt: skip
from horovod.torch._staging import Copies, check_no_capture, check_one_device, for_engine

# PyTorch has uint16 since 2.3.
_DTYPES = {getattr(torch, name): number for name, number in _facts.element_types().items() if hasattr(torch, name)}
_KINDS = {name: kind.number for name, kind in _facts.kinds().items()}

_pool = _cells.Pool(Operation)
_describe = _pool.describe

_handle_map: dict[int, Union[Operation, Group]] = {}
_handles = itertools.count(1)
# Counts calls of init and shutdown.
_generation = 0
# Protects the fields forgotten and waiting, and the removal from _handle_map.
_taking = threading.Lock()


# The compiled functions run, submit and take of shim/python/calls.c, or None: all do the plain case only.
native = _native.find(_pool, _KINDS, globals(), PlainGroup, plain_output_of, plain_rows_and_splits, _taking, _DTYPES)


def forget_all() -> None:
    """Forget the handles, and count from 1 again. Only after the engine's shutdown.

    A thread that waits for an operation still learns how it ended.
    """
    global _handles, _generation
    with _taking:
        operations = list(_handle_map.values())
        for operation in operations:
            operation.forgotten = operation.waiting > 0
        _handle_map.clear()
        _handles = itertools.count(1)
        _generation += 1
    for operation in operations:
        if not operation.forgotten:
            operation.release(reuse=True)


def is_known(handle: int) -> bool:
    """Whether the handle's operation was submitted, and nobody has synchronised it yet."""
    return handle in _handle_map


def generation() -> int:
    """A number that init and shutdown change: an operation that was submitted under another number is lost."""
    return _generation


def begin_generation() -> None:
    """Change :func:`generation`; called before init."""
    global _generation
    with _taking:
        _generation += 1


def engine_dtype(tensor: torch.Tensor, name: Optional[str] = None) -> int:
    """Check that the engine can use ``tensor``, and return its element type. Raises ValueError or TypeError.

    Errors contain ``name``. RuntimeError: see :mod:`horovod.torch._tracing`.
    """
    if not isinstance(tensor, torch.Tensor):
        raise about(TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}"), name)
    _tracing.check()
    if tensor.layout is not torch.strided:
        text = f"Tensor of layout {tensor.layout} is not supported; convert it with to_dense() first."
        raise about(ValueError(text), name)
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise about(ValueError(f"Tensor type {tensor.type()} is not supported."), name)
    if not tensor.is_contiguous():
        raise about(ValueError("Tensor is required to be contiguous."), name)
    if not tensor.is_cpu and tensor.is_meta:
        raise about(ValueError("Tensor on the device meta has no values."), name)
    return dtype


def check_empty(tensor: torch.Tensor, name: Optional[str]) -> None:
    """Raise ValueError if the tensor has elements: it has no memory."""
    if tensor.numel() > 0:
        text = (
            f"{type(tensor).__name__} without memory: it was freed, or is elsewhere. For a DTensor give its to_local()."
        )
        raise about(ValueError(text), name)


def empty_like(tensor: torch.Tensor, name: Optional[str] = None) -> torch.Tensor:
    """An output for ``tensor``, which must be checked before, by :func:`engine_dtype`."""
    engine_dtype(tensor, name)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def process_set_id(process_set: ProcessSet) -> int:
    """The engine's number of the set. Raises ValueError if the engine does not know it, TypeError if it is no set."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"process_set must be a ProcessSet, not {process_set!r}")
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not initialized; pass it to hvd.init() or to hvd.add_process_set().")
    return number


def empty_share(tensor: torch.Tensor, process_set: ProcessSet, name: Optional[str] = None) -> Optional[torch.Tensor]:
    """An output for this rank's rows of ``tensor``, which has some dimension and is checked before, as in empty_like.

    None if this process is no member; the engine then reports the error.
    """
    engine_dtype(tensor, name)
    rows = _facts.share(tensor.shape[0], process_set_id(process_set))
    if rows is None:
        return None
    return torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)


def submit(
    kind: str,
    tensor: torch.Tensor,
    output: Optional[torch.Tensor],
    name: Optional[str],
    process_set: ProcessSet,
    wait: bool,
    reduce_op: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root_rank: int = 0,
    get: Callable[[Operation], Any] = output_of,
    splits: Sequence[int] = (),
    wire: int = _lib.WIRE_AS_IT_IS,
    adds_up: bool = False,
    into: Optional[torch.Tensor] = None,
) -> int:
    """Submit a collective that reads ``tensor`` and writes ``output`` (see :class:`Operation`), and return a handle.

    ``wait``: the caller will wait for it at once. ``get`` makes the result. ``adds_up``: see ``GOROVOD_ADDS_UP``.
    ``into``: the output of an allgather, of as many elements as all ranks have; ``tensor`` may be a part of it. The
    other arguments are those of ``gorovod_op``.
    """
    if traces_bytecode():
        return _submit_between_graphs(
            kind, tensor, output, name, process_set, wait, reduce_op, prescale, postscale, root_rank, get,
            splits, wire, adds_up, into,
        )  # fmt: skip
    if native is not None and output is not None and get is output_of and not (splits or adds_up):
        short = native.submit(
            kind, tensor, output, name, process_set, reduce_op, prescale, postscale, root_rank, wire, wait
        )  # fmt: skip
        if short is not None:
            return short
    made = output is None and into is None and get in (output_of, rows_and_splits)  # by the engine
    if native is not None and made and not (wire or adds_up):
        short = native.submit_made(kind, tensor, name, process_set, splits, wait)
        if short is not None:
            return short
    dtype = engine_dtype(tensor, name)
    set_id = getattr(process_set, "process_set_id", None)
    if set_id is None:
        set_id = process_set_id(process_set)  # raises the right error
    if name is not None and (type(name) is not str or "\0" in name or not name.isascii()):
        _arguments.name(name)
    handle = next(_handles)
    if into is not None:
        output = into
    copies = _for_engine(tensor, output, into)
    if copies is None:
        source, target, flags = tensor, output, 0 if output is None else _cells.RELEASE_IF_OK
    else:
        source, target, flags = copies.source, copies.target, copies.flags
    if adds_up:
        flags |= _cells.ADDS_UP
    storage, address = storage_of(source), source.data_ptr()
    if address == 0:
        check_empty(tensor, name)
    operation = _describe(
        None if name is None else f"{kind}.{name}".encode(), tensor.shape, flags | _cells.WILL_WAIT if wait else flags,
        _KINDS[kind], dtype, reduce_op, root_rank, set_id, prescale, postscale,
        address, address if target is source else 0 if target is None or into is not None else target.data_ptr(),
    )  # fmt: skip
    operation.keeps, operation.get = (tensor, output, copies, storage, address), get
    if into is not None and target is not None:
        operation.give_output(target.data_ptr(), target.numel() * target.element_size())
    if splits:
        operation.set_splits(splits)
    if wire:
        operation.set_wire(wire)
    if copies is not None:
        copies.tell(operation, tensor)
    # Into the table before the submission: so the tensors stay alive if Ctrl-C interrupts this function afterwards.
    _handle_map[handle] = operation
    try:
        operation.submit()
    except Exception:
        del _handle_map[handle]
        operation.free()
        raise
    return handle


_submit_between_graphs = untraced(submit)


def _for_engine(
    tensor: torch.Tensor, output: Optional[torch.Tensor], into: Optional[torch.Tensor]
) -> Union[Copies, OnDevice, None]:
    """As for_engine. For an allgather of copies in host memory the engine makes the output."""
    copies = for_engine(tensor, output)
    return copies if into is None or type(copies) is not Copies else copies._replace(target=None)


@between_graphs
def submit_group(
    kind: str,
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[Optional[torch.Tensor]],
    name: Optional[str],
    process_set: ProcessSet,
    wait: bool,
    reduce_op: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    wires: Optional[Sequence[int]] = None,
    names: Optional[Sequence[str]] = None,
    intos: Optional[Sequence[torch.Tensor]] = None,
) -> int:
    """As :func:`submit`, for many tensors at once: they start when all are ready on every rank.

    ``names`` are the caller's names of the tensors, for errors, if they are not ``<name>_<i>of<n>``.
    """
    plain = intos is None and (name is None or (type(name) is str and name.isascii() and "\0" not in name))
    if native is not None and plain and isinstance(process_set, ProcessSet):
        short = native.submit_group(
            kind, tensors, outputs, None if name is None else f"grouped_{kind}.{name}".encode(), process_set,
            reduce_op, prescale, postscale, wait, _names_of(name, names, len(tensors)), wires,
        )  # fmt: skip
        if short is not None:
            return short
    dtypes = [engine_dtype(tensor, None if names is None else names[i]) for i, tensor in enumerate(tensors)]
    set_id = process_set_id(process_set)
    _arguments.name(name)
    handle = next(_handles)
    group = None if name is None else f"grouped_{kind}.{name}".encode()
    name_of = _names_of(name, names, len(tensors))
    check_one_device(tensors)
    if intos is not None:
        outputs = intos
    copies = list(map(_for_engine, tensors, outputs, [None] * len(tensors) if intos is None else intos))
    engine_kind, waits = _KINDS[kind], _cells.WILL_WAIT if wait else 0
    operations: list[Operation] = []
    try:
        for tensor, output, copy, dtype in zip(tensors, outputs, copies, dtypes):
            if copy is None:
                source, target, flags = tensor, output, 0 if output is None else _cells.RELEASE_IF_OK
            else:
                source, target, flags = copy.source, copy.target, copy.flags
            storage, address = storage_of(source), source.data_ptr()
            if address == 0:
                check_empty(tensor, None if name_of is None else name_of(len(operations)))
            operation = _describe(
                None, tensor.shape, waits | flags, engine_kind, dtype, reduce_op, 0, set_id, prescale, postscale,
                address, address if target is source else 0 if target is None or intos else target.data_ptr(),
            )  # fmt: skip
            operation.keeps = (tensor, output, copy, storage, address)
            operations.append(operation)
            if intos and target is not None:
                operation.give_output(target.data_ptr(), target.numel() * target.element_size())
            if wires is not None and wires[len(operations) - 1]:
                operation.set_wire(wires[len(operations) - 1])
            if copy is not None:
                copy.tell(operation, tensor)
        _handle_map[handle] = submitted = Group(operations, name_of)
        submitted.submit(group)
    except Exception:
        _handle_map.pop(handle, None)
        for operation in operations:
            operation.free()
        raise
    return handle


def _names_of(name: Optional[str], names: Optional[Sequence[str]], n: int) -> Optional[Names]:
    """The caller's names of the tensors of a group."""
    if names is not None:
        return names.__getitem__
    return None if name is None else lambda i: f"{name}_{i + 1}of{n}"


@between_graphs
def submit_without_tensor(kind: int, process_set: ProcessSet, get: Callable[[Operation], Any] = output_of) -> int:
    """Submit a barrier or a join, and return a handle. The caller will wait for it at once."""
    set_id = process_set_id(process_set)
    operation = _describe(None, (), _cells.WILL_WAIT, kind, _lib.UINT8, 0, 0, set_id, 1.0, 1.0, 0, 0)
    operation.keeps, operation.get = (None, None, None, None, 0), get
    handle = next(_handles)
    _handle_map[handle] = operation
    try:
        operation.submit()
    except Exception:
        del _handle_map[handle]
        operation.free()
        raise
    return handle


def _operation_of(handle: int) -> Union[Operation, Group, None]:
    """The operation of a handle, None if it was synchronised already. TypeError if this is no handle."""
    try:
        operation = _handle_map.get(handle)
    except TypeError:  # it is not hashable
        operation = None
    if operation is None and not isinstance(handle, numbers.Integral):
        raise TypeError(f"expected the handle of an asynchronous call, an int, not {handle!r}")
    return operation


@between_graphs
def poll(handle: int) -> bool:
    """Tell whether the operation has ended, so that :func:`synchronize` will not block, and its input may be freed.

    Args:
        handle: the operation's handle.

    Returns:
        Whether it has.

    Raises:
        ValueError: the handle was synchronised already.
        TypeError: this is no handle.
        HorovodInternalError: in a forked child.

    Example:
        >>> handle = hvd.allreduce_async(torch.tensor([1.0]))
        >>> while not hvd.poll(handle):
        ...     pass
        >>> hvd.synchronize(handle)
        tensor([1.])
    """
    operation = _operation_of(handle)
    if operation is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    if _lib.forked:
        raise _refused()
    if operation.poll() == _lib.IN_PROGRESS:
        return False
    with _taking:
        if _handle_map.get(handle) is operation:  # no other thread has synchronised it meanwhile
            operation.tell_ended()
    return True


def _refused() -> Exception:
    """The engine's error in a forked child."""
    return _lib.error(_lib.wait(0))


def _check_no_capture(operation: Union[Operation, Group]) -> None:
    """Raise ValueError if the operation's tensors are on a GPU whose current stream is being captured."""
    one = operation if isinstance(operation, Operation) else next(iter(operation.operations), None)
    keeps = one.keeps if one is not None else None  # another thread may release the operation
    if keeps is not None and keeps[2] is not None and keeps[0].is_cuda:
        check_no_capture()


def synchronize(handle: int) -> Any:
    """Wait for the operation. After a KeyboardInterrupt the handle, its operation and its tensors stay as they are.

    Args:
        handle: the operation's handle. It becomes invalid, whether this returns or raises.

    Returns:
        The output: a list for grouped operations, a tensor and the received splits for alltoall. None if the handle was
        synchronised already.

    Raises:
        HorovodInternalError: the operation failed.
        TypeError: this is no handle.
        ValueError: its arguments were bad, or its tensor's memory was freed meanwhile. Or a CUDA graph is being
            captured; then the handle stays valid.

    Example:
        >>> hvd.synchronize(hvd.allreduce_async(torch.tensor([1.0])))
        tensor([1.])
    """
    if traces_bytecode():
        return _synchronize_between_graphs(handle)
    if native is not None:
        result = native.take(handle, False)
        if result is not None:
            return result
    operation = _operation_of(handle)
    if operation is None:
        return None
    if _lib.forked:
        raise _refused()
    _check_no_capture(operation)
    status = operation.status()
    waited = status == _lib.IN_PROGRESS
    if waited:
        with _taking:
            if _handle_map.get(handle) is not operation:
                return None
            operation.waiting += 1
        try:
            status = operation.wait()
        except BaseException:
            with _taking:
                operation.waiting -= 1
            raise
    if native is not None:  # also if it has ended since the first call of take
        result = native.take(handle, waited)
        if result is not None:
            return result
    with _taking:
        operation.waiting -= waited
        if _handle_map.get(handle) is operation:
            del _handle_map[handle]
        elif waited and operation.forgotten:
            operation.forgotten = False
        else:
            return None  # another thread has the result, or it was dropped
        reuse = operation.waiting == 0
    try:
        if status != _lib.OK:
            raise operation.failure()
        return operation.result()
    finally:
        operation.release(reuse)


_synchronize_between_graphs = untraced(synchronize)


def complete(
    kind: str,
    tensor: torch.Tensor,
    output: torch.Tensor,
    name: Optional[str],
    process_set: ProcessSet,
    reduce_op: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root_rank: int = 0,
    wire: int = _lib.WIRE_AS_IT_IS,
) -> torch.Tensor:
    """:func:`submit` and :func:`synchronize` in one: returns ``output`` at the end of the operation."""
    if native is not None and not traces_bytecode():
        result = native.run(kind, tensor, output, name, process_set, reduce_op, prescale, postscale, root_rank, wire)
        if result is not None:
            return synchronize(result) if type(result) is int else result
    return synchronize(
        submit(
            kind, tensor, output, name, process_set, True, reduce_op, prescale, postscale, root_rank, wire=wire
        )  # fmt: skip
    )


def collect(
    kind: str,
    tensor: torch.Tensor,
    name: Optional[str],
    process_set: ProcessSet,
    get: Callable[[Operation], Any] = output_of,
    splits: Sequence[int] = (),
) -> Any:
    """:func:`submit` and :func:`synchronize` in one, for an allgather or an alltoall. Returns its result."""
    if native is not None and not traces_bytecode():
        result = native.run_made(kind, tensor, name, process_set, splits)
        if result is not None:
            return synchronize(result) if type(result) is int else result
    return synchronize(submit(kind, tensor, None, name, process_set, True, get=get, splits=splits))


basics.before_init.append(begin_generation)
basics.after_shutdown.append(forget_all)

for _module in (
    __name__, Operation.__module__, "horovod.torch._staging", "horovod.torch._device_memory", _operations.__name__,
    _cells.__name__, _lib.__name__,
):  # fmt: skip
    never_trace(_module)
