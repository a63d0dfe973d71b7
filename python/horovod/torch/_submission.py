"""From PyTorch tensors to the engine and back.

An operation is submitted with the addresses of its tensors' memory and is named by a *handle*, an int. The table
``_handle_map`` keeps the tensors alive until :func:`synchronize`, however the caller is interrupted. A tensor that is
not in host memory goes through a copy there, and so does one whose memory does not hold its values (see ``is_neg``).

A large output that the engine has made stays where it is: the result is a tensor on that memory, which is freed with
it. Such a tensor is like any other, except that ``resize_`` to more elements is a RuntimeError, as with
``torch.from_numpy``.

Ranks match their operations by name: ``<op>.<name>``, or ``<op>.noname.<handle>`` without one, as Horovod does. There
is one count of handles, that of all operations, so all ranks must issue their unnamed operations in the same order,
and must have issued as many operations of every kind before. An operation on a process set counts on its members only:
name the operations, of sets and after them, where some ranks are not members.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from typing import Any, Callable, Optional, Sequence

import torch

from horovod.common import _lib
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet

_DTYPES = {
    torch.uint8: _lib.UINT8,
    torch.int8: _lib.INT8,
    torch.int16: _lib.INT16,
    torch.int32: _lib.INT32,
    torch.int64: _lib.INT64,
    torch.float16: _lib.FLOAT16,
    torch.bfloat16: _lib.BFLOAT16,
    torch.float32: _lib.FLOAT32,
    torch.float64: _lib.FLOAT64,
    torch.bool: _lib.BOOL,
}
if hasattr(torch, "uint16"):  # PyTorch 2.3
    _DTYPES[torch.uint16] = _lib.UINT16

_KINDS = {
    "allreduce": _lib.ALLREDUCE,
    "allgather": _lib.ALLGATHER,
    "broadcast": _lib.BROADCAST,
    "alltoall": _lib.ALLTOALL,
    "reducescatter": _lib.REDUCESCATTER,
}

# From this size on, outputs are not copied out of the engine's memory.
_LARGE_BYTES = 1 << 16


class Part:
    """One tensor of an operation, and the memory that the engine uses for it.

    ``output`` is a tensor for the result, perhaps ``input`` itself; None if the engine allocates it. A barrier has
    neither. Where the engine cannot use a tensor's memory, this makes the copy that it uses.
    """

    __slots__ = ("engine_handle", "host_input", "host_output", "input", "output")

    def __init__(self, input: Optional[torch.Tensor] = None, output: Optional[torch.Tensor] = None) -> None:
        self.engine_handle = 0
        self.input = input
        self.output = output
        self.host_input = input if input is None or _usable(input) else _host_memory(input).copy_(input.detach())
        if output is input:
            self.host_output = self.host_input
        else:
            self.host_output = output if output is None or _usable(output) else _host_memory(output)

    def operation(self, kind: str, dtype: int, name: str, process_set: int, wait: bool, **arguments: Any) -> _lib.Op:
        """The description of this tensor's collective, for the engine."""
        return _lib.operation(
            _KINDS[kind],
            dtype,
            self.input.shape,
            name.encode(),
            self.host_input.data_ptr(),
            None if self.host_output is None else self.host_output.data_ptr(),
            process_set,
            _lib.WILL_WAIT if wait else 0,
            **arguments,
        )

    def result(self) -> Any:
        """The output of the operation, which has ended well."""
        if self.output is None:
            return None if self.input is None else self._allocated()
        if self.host_output is not self.output:
            self.output.detach().copy_(self.host_output)
        return self.output

    def _allocated(self) -> torch.Tensor:
        dtype = self.input.dtype
        address, shape = _lib.output(self.engine_handle, self.input.dim())
        size = math.prod(shape) * self.input.element_size()
        if size >= _LARGE_BYTES:
            output = torch.frombuffer(_lib.take_output(self.engine_handle, size), dtype=dtype)
            output.resize_(shape)  # unlike view, in place: autograd must not take the result for a view
        else:
            output = torch.empty(shape, dtype=dtype)
            if size:
                ctypes.memmove(output.data_ptr(), address, size)
        return output.to(self.input.device)


class AlltoallPart(Part):
    """Its result is the pair of the tensor and of the rows received from each member, an int32 tensor."""

    __slots__ = ()

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._allocated(), torch.tensor(_lib.received_splits(self.engine_handle), dtype=torch.int32)


class JoinPart(Part):
    """Its result is the rank that joined last."""

    __slots__ = ()

    def result(self) -> int:
        return _lib.last_joined(self.engine_handle)


class _Operation:
    """What a handle stands for: one tensor's operation, or a group of them."""

    __slots__ = ("grouped", "parts", "taken", "waiting")

    def __init__(self, parts: Sequence[Part], grouped: bool) -> None:
        self.parts = parts
        self.grouped = grouped
        self.waiting = False  # a thread is in synchronize and will take it
        self.taken = False  # its engine handles are, or are about to be, released

    def wait(self) -> Optional[Exception]:
        """Wait until every part has ended, and return what the first one that failed died of."""
        failure = None
        for part in self.parts:
            status = _lib.wait(part.engine_handle)
            if status != _lib.OK and failure is None:
                failure = _lib.error(status)
        return failure

    def result(self) -> Any:
        return [part.result() for part in self.parts] if self.grouped else self.parts[0].result()

    def release(self) -> None:
        for part in self.parts:
            _lib.release(part.engine_handle)


_handle_map: dict[int, _Operation] = {}
_handles = itertools.count(1)
# How often Horovod was initialised or shut down.
_generation = 0
# Protects the field taken, and the removal from _handle_map.
_taking = threading.Lock()


def forget_all() -> None:
    """Forget the handles that nobody is waiting for, and count from 1 again. Only after the engine's shutdown."""
    global _handles, _generation
    with _taking:
        forgotten = [operation for operation in _handle_map.values() if not operation.waiting]
        for operation in forgotten:
            operation.taken = True
        _handle_map.clear()
        _handles = itertools.count(1)
        _generation += 1
    for operation in forgotten:
        operation.release()


def generation() -> int:
    """A number that init and shutdown change: what was submitted under another one is lost."""
    return _generation


def begin_generation() -> None:
    """Change :func:`generation`; before init."""
    global _generation
    with _taking:
        _generation += 1


def engine_dtype(tensor: torch.Tensor) -> int:
    """Check that the engine can work on ``tensor``, and return its element type. Raises ValueError or TypeError."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise ValueError(f"Tensor of layout {tensor.layout} is not supported; convert it with to_dense() first.")
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")
    return dtype


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """An output for ``tensor``, which is checked before."""
    engine_dtype(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _check_name(name: Optional[str]) -> None:
    if name is not None and "\0" in name:
        raise ValueError(f"name {name!r} contains a NUL character")


def process_set_id(process_set: ProcessSet) -> int:
    """The number by which the engine knows the set. Raises ValueError if it does not."""
    number = process_set.process_set_id
    if number is None:
        raise ValueError(f"{process_set} is not initialized; pass it to hvd.init() or to hvd.add_process_set().")
    return number


def empty_share(tensor: torch.Tensor, process_set: ProcessSet) -> Optional[torch.Tensor]:
    """An output for this rank's rows of ``tensor``, which has some dimension and is checked before.

    None if this process is no member, which the engine will tell.
    """
    engine_dtype(tensor)
    member = _lib.rank_and_size(process_set_id(process_set))
    if member is None:
        return None
    rank, size = member
    rows, rest = divmod(tensor.shape[0], size)
    shape = (rows + (1 if rank < rest else 0), *tensor.shape[1:])
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)


def _usable(tensor: torch.Tensor) -> bool:
    """Whether the engine can work on the tensor's memory: it is the host's, and its values are not to be negated."""
    return tensor.device.type == "cpu" and not tensor.is_neg()


def _host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor for the engine that is like ``tensor``, with undefined contents."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


def submit(
    kind: str,
    tensor: torch.Tensor,
    output: Optional[torch.Tensor],
    name: Optional[str],
    process_set: ProcessSet,
    wait: bool,
    part_of: Callable[..., Part] = Part,
    **arguments: Any,
) -> int:
    """Submit a collective that reads ``tensor`` and writes ``output`` (see :class:`Part`), and return a handle.

    ``wait`` says that the caller will wait for it at once. ``arguments`` are those of ``_lib.operation``.
    """
    dtype = engine_dtype(tensor)
    set_id = process_set_id(process_set)
    _check_name(name)
    handle = next(_handles)
    wire_name = f"{kind}.noname.{handle}" if name is None else f"{kind}.{name}"
    part = part_of(tensor, output)
    op = part.operation(kind, dtype, wire_name, set_id, wait, **arguments)
    return _enter(handle, _Operation([part], grouped=False), lambda: [_lib.enqueue(op)])


def submit_group(
    kind: str,
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[Optional[torch.Tensor]],
    name: Optional[str],
    process_set: ProcessSet,
    wait: bool,
    **arguments: Any,
) -> int:
    """As :func:`submit`, with many tensors at once: none of them starts before all are ready on every rank."""
    dtypes = [engine_dtype(tensor) for tensor in tensors]
    set_id = process_set_id(process_set)
    _check_name(name)
    handle = next(_handles)
    group = f"grouped_{kind}.noname.{handle}" if name is None else f"grouped_{kind}.{name}"
    parts = [Part(tensor, output) for tensor, output in zip(tensors, outputs)]
    ops = [
        part.operation(kind, dtype, f"{group}_{i}of{len(parts)}", set_id, wait, **arguments)
        for i, (part, dtype) in enumerate(zip(parts, dtypes), 1)
    ]
    return _enter(handle, _Operation(parts, grouped=True), lambda: _lib.enqueue_group(group.encode(), ops))


def submit_without_tensor(kind: int, process_set: ProcessSet, part: Part) -> int:
    """Submit a barrier or a join, and return a handle. The caller will wait for it at once."""
    op = _lib.operation(kind, _lib.UINT8, (), None, None, None, process_set_id(process_set), _lib.WILL_WAIT)
    return _enter(next(_handles), _Operation([part], grouped=False), lambda: [_lib.enqueue(op)])


def _enter(handle: int, operation: _Operation, enqueue: Callable[[], list[int]]) -> int:
    # In the table first: an interrupt after the submission must find the tensors kept alive.
    _handle_map[handle] = operation
    try:
        engine_handles = enqueue()
    except Exception:
        del _handle_map[handle]
        raise
    for part, engine_handle in zip(operation.parts, engine_handles):
        part.engine_handle = engine_handle
    return handle


def poll(handle: int) -> bool:
    """Whether the operation has ended, so that :func:`synchronize` will not block.

    Raises ValueError for a handle that was synchronised already.
    """
    operation = _handle_map.get(handle)
    if operation is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return all(_lib.poll(part.engine_handle) for part in operation.parts)


def synchronize(handle: int) -> Any:
    """Wait for the operation and return its output; None if the handle was synchronised already.

    The output is a list for grouped operations, a tensor and the received splits for alltoall. Raises
    HorovodInternalError if the operation failed, ValueError if its arguments were bad. Either way the handle is gone.
    KeyboardInterrupt leaves the handle, its operation and its tensors as they are.
    """
    operation = _handle_map.get(handle)
    return None if operation is None else _take(handle, operation)


class Result:
    """Of one operation, even when its handle has come to name another.

    Calling it is as :func:`synchronize`, but it returns the same, or raises the same, as often as it is called.
    HorovodInternalError if Horovod was shut down before the first time.
    """

    __slots__ = ("_failure", "_handle", "_operation", "_output")

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._operation: Optional[_Operation] = _handle_map[handle]
        self._output: Any = None
        self._failure: Optional[Exception] = None

    def __call__(self) -> Any:
        if self._operation is not None:
            try:
                self._output = _take(self._handle, self._operation)
                if self._output is None:
                    raise HorovodInternalError("Horovod was shut down before the result of this operation was fetched.")
            except Exception as e:
                self._failure = e
            self._operation = None
        if self._failure is not None:
            raise self._failure
        return self._output


def _take(handle: int, operation: _Operation) -> Any:
    """Wait for the operation, release it and return its output; None if that was done already."""
    operation.waiting = True
    try:
        # What forget_all has released stays taken, so this asks the engine in vain at worst.
        failure = operation.wait()
    except BaseException:
        operation.waiting = False
        raise
    with _taking:
        if operation.taken:
            return None  # by another thread, or by forget_all
        operation.taken = True
        if _handle_map.get(handle) is operation:
            del _handle_map[handle]
    try:
        if failure is not None:
            raise failure
        return operation.result()
    finally:
        operation.release()
