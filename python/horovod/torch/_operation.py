"""The operation of a handle, or the group of operations, and how its result is made; see :mod:`._submission`."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from horovod.common import _lib, _operations
from horovod.torch._device_memory import OnDevice
from horovod.torch._staging import host_memory, store, to_device

# A function from the index in a group, from 0, to the caller's name of the tensor.
Names = Callable[[int], str]


class Operation(_operations.Operation):
    """The operation of a handle, on one tensor or on none.

    It ``keeps`` its input, its output, the :class:`Copies` or :class:`OnDevice` that the engine gets if it does not
    work on their host memory, and the storage that the engine reads. The output is a tensor for the result, perhaps the
    input itself; None if the engine allocates it. A barrier has neither. Like any cell it becomes another operation
    once it is released: only ``_handle_map`` shows that it belongs to a handle. Before the end, only the engine knows
    an output that is not the input.
    """

    __slots__ = ("forgotten", "get", "waiting")

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.get: Callable[[Operation], Any] = output_of  # makes the result from the operation
        self.waiting = 0  # how many threads wait for the end
        self.forgotten = False  # forget_all was called while threads waited: the first of them gets the result

    def failure(self) -> Exception:
        """The error of the operation, with the caller's or the engine's name for it."""
        return self.failure_about(_name_by_caller(self))

    def failure_about(self, name: Optional[str]) -> Exception:
        """The same, about ``name``."""
        if name is None and self.keeps[0] is not None:  # neither a barrier nor a join
            name = _lib.name(self.handle)
        return about(super().failure(), name)

    def result(self) -> Any:
        """The result of the operation, which has succeeded."""
        return self.get(self)

    def tell_ended(self) -> None:
        """Note that the caller knows that the operation has ended, so that the caller may now free the memory."""
        input, output, copies, storage, address = self.keeps
        if storage is not None and is_unmoved(storage, address):
            self.keeps = (input, output, copies, None, 0)


class Group(_operations.Group[Operation]):
    """As :class:`Operation`, for many tensors that were submitted together."""

    __slots__ = ("forgotten", "names", "waiting")

    def __init__(self, operations: list[Operation], names: Optional[Names]) -> None:
        super().__init__(operations)
        self.names = names
        self.waiting = 0
        self.forgotten = False

    def failure(self) -> Exception:
        """The error of the first operation that failed, with its name."""
        failed = self.failed()
        operation = self.operations[failed]
        return operation.failure() if self.names is None else operation.failure_about(self.names(failed))

    def result(self) -> list[torch.Tensor]:
        outputs = []
        try:
            for operation in self.operations:
                outputs.append(output_of(operation))
        except ValueError as e:
            raise about(e, self.names and self.names(len(outputs))) from None
        return outputs

    def tell_ended(self) -> None:
        for operation in self.operations:
            operation.tell_ended()


class PlainGroup(Group):
    """A group that the extension has submitted."""

    __slots__ = ()


def _name_by_caller(operation: Operation) -> Optional[str]:
    """The caller's name of the operation, if there is one."""
    return None if operation.name is None else operation.name.decode(errors="replace").partition(".")[2]


def about(error: Exception, name: Optional[str]) -> Exception:
    """``error``, with the operation's name added."""
    text = str(error)
    return error if name is None or f'{name}"' in text else type(error)(f"{text} {_tensor(name)}")


def _tensor(name: str) -> str:
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)  # for a terminal
    return f'(tensor "{shown}")'


def follow(operation: Operation) -> bool:
    """See that the tensors of an operation, which has succeeded, may be used on the current stream of their GPU.

    Returns whether NCCL has carried them there.
    """
    input, _, copies, storage, address = operation.keeps
    if storage is not None and (input if copies is None else copies.source).data_ptr() != address:
        check_unmoved(storage, address, _name_by_caller(operation))
    on_device = type(copies) is OnDevice
    if on_device:
        copies.follow(operation)
    return on_device


def output_of(operation: Operation) -> Optional[torch.Tensor]:
    """The output of an operation that has succeeded."""
    on_device = follow(operation)
    input, output, copies, _, _ = operation.keeps
    if output is None:
        if input is None:
            return None
        return copies.made_output(operation) if on_device else _allocated(operation, input)
    if copies is not None and copies.target is not output:
        store(_allocated(operation, input) if copies.target is None else copies.target, output)
    return output


def plain_output_of(operation: Operation) -> Optional[torch.Tensor]:
    """As :func:`output_of`. It marks the operations that the extension has submitted."""
    return output_of(operation)


# The memory of tensors. A tensor may get another storage, and a reference keeps a storage alive.
storage_of: Callable[[torch.Tensor], Any] = getattr(torch.Tensor, "untyped_storage", None) or torch.Tensor._storage


def is_unmoved(storage: Any, address: int) -> bool:
    """Whether ``storage`` still has the memory at ``address``."""
    begin = storage.data_ptr()
    return address == 0 or begin <= address <= begin + storage.nbytes()


def check_unmoved(storage: Any, address: int, name: Optional[str]) -> None:
    """Raise ValueError if ``storage`` no longer has its memory at ``address``: freed while an operation used it."""
    if not is_unmoved(storage, address):
        raise about(
            ValueError(
                "The tensor's memory was freed while an operation was using it, so the result is lost, and what has "
                "got that memory since may be damaged. Between the start of an operation and synchronize(), do not "
                "resize the tensor or its storage, and do not move it to shared memory."
            ),
            name,
        )


def rows_and_splits(operation: Operation) -> tuple[Optional[torch.Tensor], torch.Tensor]:
    """The output of an alltoall, and the rows received from each member, an int32 tensor."""
    received = _lib.received_splits(operation.handle)
    return output_of(operation), torch.tensor(received, dtype=torch.int32, device="cpu")


def plain_rows_and_splits(operation: Operation) -> tuple[Optional[torch.Tensor], torch.Tensor]:
    """As :func:`rows_and_splits`. It marks the alltoalls that the extension has submitted."""
    return rows_and_splits(operation)


def last_joined(operation: Operation) -> int:
    """The rank that joined last."""
    return _lib.last_joined(operation.handle)


def _allocated(operation: Operation, input: torch.Tensor) -> torch.Tensor:
    dtype = input.dtype

    def empty(shape: tuple[int, ...]) -> tuple[torch.Tensor, int]:
        output = host_memory(shape, input)
        return output, output.data_ptr()

    def on_memory(view: memoryview, shape: tuple[int, ...]) -> torch.Tensor:
        output = torch.frombuffer(view, dtype=dtype)
        return output.resize_(shape)  # in place, unlike view: autograd must not treat the result as a view

    output = operation.output(input.dim(), input.element_size(), empty, on_memory if input.is_cpu else None)
    return to_device(output, input)
