"""The life of an operation that a front end submits. It is the same in all front ends:

    describe ──▶ submit ──▶ poll, or wait ──▶ output, or failure ──▶ release

``describe`` writes the operation into a cell (see :mod:`._cells`). The front end keeps the memory that it describes
alive in ``keeps`` until the release. The status word in the cell tells the end without a call of the library. Several
operations that start together are a :class:`Group`, which has the same methods. Those of TensorFlow, and of JAX in
compiled programs, live in C (``shim/``), by the same calls of ``include/gorovod.h``.
"""

from __future__ import annotations

import ctypes
import math
import time
from typing import Any, Callable, Generic, Optional, Sequence, TypeVar

from horovod.common import _cells, _lib

# Outputs of this size and larger stay in the engine's memory; copying smaller ones is cheaper.
LARGE_BYTES = 1 << 16

# Local names, because each operation looks them up.
_OK, _IN_PROGRESS, _RELEASE_IF_OK = _lib.OK, _lib.IN_PROGRESS, _cells.RELEASE_IF_OK


class Operation(_cells.Cell):
    """One operation, which has been described. After its release the cell belongs to another operation.

    ``submit()`` passes it to the engine. If that raises, as ``_lib.error`` says, free the operation.
    """

    __slots__ = ()

    submit = _cells.enqueue  # the function without a wrapper: one more call for each operation is measurable

    def status(self) -> int:
        """How the operation has ended, or IN_PROGRESS. It makes no call."""
        return self.words[self.word]

    def poll(self) -> int:
        """As :meth:`status`, for a caller that polls: the engine then knows that the caller waits."""
        status = self.words[self.word]
        if status == _IN_PROGRESS:
            _lib.load().gorovod_wait(self.handle, 0)
        return status

    def wait(self) -> int:
        """Wait for the end, and return the status."""
        while self.words[self.word] == _IN_PROGRESS:
            status = _lib.wait(self.handle)
            if self.words[self.word] == _IN_PROGRESS:
                raise _lib.error(status)  # the wait failed, not the operation
        return self.words[self.word]

    def failure(self) -> Exception:
        """The error of the operation, which has failed."""
        return _lib.error(_lib.wait(self.handle))

    def output(
        self,
        ndim: int,
        item_bytes: int,
        empty: Callable[[tuple[int, ...]], tuple[Any, int]],
        on_memory: Optional[Callable[[memoryview, tuple[int, ...]], Any]] = None,
    ) -> Any:
        """The output that the engine has made, of ``ndim`` dimensions, with elements of ``item_bytes``.

        ``empty`` makes a result of a shape, and returns it with its address. ``on_memory`` makes a large result from
        the engine's own memory, which then belongs to the result.
        """
        address, shape = _lib.output(self.handle, ndim)
        size = math.prod(shape) * item_bytes
        if size >= LARGE_BYTES and on_memory is not None:
            return on_memory(_lib.take_output(self.handle, size), shape)
        result, target = empty(shape)
        if size and address is not None:
            ctypes.memmove(target, address, size)
        return result

    def release(self, reuse: bool = True) -> None:
        """Release the operation, which has ended. ``reuse``: nobody reads its cell any more."""
        status = self.words[self.word]
        if status != _OK or not self.flags & _RELEASE_IF_OK:
            _lib.release(self.handle)
        if reuse and status != _IN_PROGRESS:
            self.free()


AnyOperation = TypeVar("AnyOperation", bound=Operation)

pool = _cells.Pool(Operation)
describe = pool.describe


class Group(Generic[AnyOperation]):
    """Operations that start together, or one operation that is used like several."""

    __slots__ = ("operations",)

    def __init__(self, operations: list[AnyOperation]) -> None:
        self.operations = operations

    def submit(self, name: Optional[bytes]) -> None:
        """As for an operation: all are submitted, or none is. See ``_cells.enqueue_group`` for the name."""
        _cells.enqueue_group(name, self.operations)

    def submit_as_fits(self, name: Optional[bytes]) -> None:
        """As :meth:`submit`, but a single operation is submitted without a group, and an empty list does nothing."""
        if len(self.operations) == 1:
            self.operations[0].submit()
        elif self.operations:
            self.submit(name)

    def status(self) -> int:
        """As for an operation, once all have ended: a failure, if there is one."""
        if len(self.operations) == 1:
            return self.operations[0].status()
        if self.operations and self.operations[-1].status() == _IN_PROGRESS:
            return _IN_PROGRESS
        statuses = {operation.words[operation.word] for operation in self.operations}
        if _lib.IN_PROGRESS in statuses:
            return _lib.IN_PROGRESS
        statuses.discard(_lib.OK)
        return statuses.pop() if statuses else _lib.OK

    def poll(self) -> int:
        """As for an operation."""
        for operation in reversed(self.operations):
            if operation.poll() == _lib.IN_PROGRESS:
                return _lib.IN_PROGRESS
        return self.status()

    def wait(self) -> int:
        """As for an operation."""
        # Wait for the last one first: by then most others have ended, too.
        for operation in reversed(self.operations):
            if operation.words[operation.word] == _IN_PROGRESS:
                operation.wait()
        return self.status()

    def failed(self) -> int:
        """The index of the first operation that failed."""
        return next(i for i, operation in enumerate(self.operations) if operation.status() != _lib.OK)

    def failure(self) -> Exception:
        """The error of the first operation that failed."""
        return self.operations[self.failed()].failure()

    def release(self, reuse: bool = True) -> None:
        """As for an operation."""
        for operation in self.operations:
            operation.release(reuse)

    def free(self) -> None:
        """Give up operations that were never submitted."""
        for operation in self.operations:
            operation.free()


def wait_until(handles: Sequence[int], deadline: float) -> bool:
    """Wait at most until ``time.monotonic()`` is ``deadline``, and return whether all the operations have ended.

    Use it if another thread may release the operations meanwhile: a handle never refers to another operation.
    """
    gorovod_wait = _lib.load().gorovod_wait
    for handle in handles:
        while True:
            left_ms = int((deadline - time.monotonic()) * 1000)
            # In slices of time, so that Ctrl-C works.
            if gorovod_wait(handle, min(max(left_ms, 0), _lib.WAIT_SLICE_MS)) != _lib.IN_PROGRESS:
                break
            if left_ms <= 0:
                return False
    return True


# Groups whose submission was interrupted, with the tensors that the engine may still use.
_abandoned: list[Group] = []


def abandon(group: Group) -> None:
    """Keep ``group``, and the objects that its operations keep, until it has ended, although nobody waits for it."""
    _abandoned.append(group)
    ended = [other for other in _abandoned if other.status() != _lib.IN_PROGRESS]
    for other in ended:
        _abandoned.remove(other)
        other.release()
