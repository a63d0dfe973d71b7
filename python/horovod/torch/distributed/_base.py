"""The code that all operations of a process group share: how they start, in which order, and on which memory."""

from __future__ import annotations

import datetime
import itertools
import weakref
from typing import Any, Callable, Optional, Sequence, Union

import torch
import torch.distributed as dist

from horovod.common import _cells, _lib
from horovod.common._operations import Operation
from horovod.torch import _device_memory, _staging
from horovod.torch._collectives import _join as _joining
from horovod.torch._submission import check_empty
from horovod.torch.distributed import _callbacks, _memory, _sets
from horovod.torch.distributed._traces import Traces
from horovod.torch.distributed._work import Collective, Work

# How many operations of a group have different names; then names repeat. The engine remembers 1024 names, and an
# operation is cheap if the last one of its name was alike, so a program's period should divide this number. Operations
# of one name wait for one another.
_NAMES = 720

Tensors = Sequence[torch.Tensor]

pool = _cells.Pool(Operation)


def one(tensors: Union[torch.Tensor, Tensors], what: str) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{what} takes one tensor a process, not {len(tensors)}")
    return tensors[0]


def _are_targets(outputs: Tensors, operations: Sequence[Operation]) -> bool:
    """Whether the engine writes to ``outputs`` directly."""
    if len(outputs) == len(operations) == 1:
        return outputs[0].data_ptr() == operations[0].keeps[1][1]
    targets = [operation.keeps[1][1] for operation in operations]
    return [output.data_ptr() for output in outputs] == targets


class Base(dist.ProcessGroup):
    """A group of ranks without its operations, which are in derived classes."""

    def __init__(self, ranks: Sequence[int], rank: int, number: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, len(ranks))
        self._ranks = list(ranks)  # of the world
        self._rank = rank
        self._number = number  # the group's number, the same on all members
        self._place = _callbacks.Place()  # numbers of two groups may be equal
        # Of the program's operations, which have few paths, and of those of callbacks.
        self._lines: dict[str, _callbacks.Line] = {}
        self._callbacks_lines: weakref.WeakValueDictionary[str, _callbacks.Line] = weakref.WeakValueDictionary()
        self._timeout = timeout
        self._set = _sets.acquire(self._ranks, self._rank, timeout)
        self._counter = itertools.count()
        self._returned: list[int] = []  # numbers that the counter has given, and that no operation has
        self._prefix = f"torch.{number}.".encode()  # of the operations' names
        self._turns = itertools.count()  # never from 0 again
        self._joins = _joining.joins_ended  # when the count of operations began
        self._latest: dict[str, Collective] = {}
        self._late: list[Collective] = []  # collectives that copy results to their outputs when they are concluded
        self._traces = Traces()

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Number of ranks in the group."""
        return len(self._ranks)

    # ---- How every operation is submitted.

    def _limit(self, options: Any) -> datetime.timedelta:
        timeout = getattr(options, "timeout", None)
        return timeout if timeout is not None and timeout > datetime.timedelta(0) else self._timeout

    def _start(
        self,
        kind: str,
        describe: Callable[[str], list[Operation]],
        outputs: Tensors,
        options: Any,
        finish: Optional[Callable[[Sequence[int]], None]] = None,
    ) -> Work:
        """Start what ``describe`` makes for a name: a collective, or several that start together, without names."""
        if self._joins != _joining.joins_ended:
            self._begin_after_join()
        limit = self._limit(options)
        path = _callbacks.path(self._place, f"{kind} of group {self._number}", limit.total_seconds())
        stream, number = self._number, None
        if path is None:
            number = self._returned.pop() if self._returned else next(self._counter)
            path = str(number % _NAMES)
        else:
            stream = _callbacks.stream(path)
        # A refused submission uses up a name, too, because other ranks count it.
        _memory.check_written(outputs, self._what(kind, path))
        operations = describe(self._name(path))
        for operation in operations:
            operation.set_stream(stream)
        if self._late or self._traces.kept:
            self._settle_copies([tensor for operation in operations for tensor, *_ in operation.keeps])
        late = None if not outputs or _are_targets(outputs, operations) else self._late
        return self._collective(kind, path, number, outputs, limit, operations, finish, describe, late)

    def _name(self, path: str) -> str:
        """The engine's name of an operation."""
        return f"torch.{self._number}.{path}"

    def _what(self, kind: str, path: str) -> str:
        """The user's name of an operation."""
        return f"{kind} number {path} of group {self._number}"

    def _collective(
        self, kind: str, path: str, number: Optional[int], outputs: Tensors, limit: datetime.timedelta,
        operations: list[Operation], finish: Optional[Callable[[Sequence[int]], None]] = None, keep: object = None,
        late: Optional[list[Collective]] = None, submitted: bool = False,
    ) -> Collective:  # fmt: skip
        """The Work of operations; ``number`` is that of the program's operation, None in a callback."""
        if number is None:
            turn = _callbacks.turn()
            assert turn is not None, "only in a callback"
            origin = _callbacks.Origin(self._callbacks_lines, self._place, path, turn)
        else:
            of_callbacks = str(number % _callbacks.NAMES)
            origin = _callbacks.Origin(self._lines, self._place, of_callbacks, next(self._turns))
        return Collective(
            self._what(kind, path), self._name(path), outputs, limit, operations, keep, finish, self._latest, late,
            self._traces, origin, submitted,
        )  # fmt: skip

    # Operations on the same memory run in the order of the calls. If the engine works on the memory itself, the engine
    # ensures that. If it works on copies, the caller waits for the earlier operation.

    def _settle(self, tensors: Tensors) -> None:
        """Wait for all operations on the memory of ``tensors``, from or to which data will be copied."""
        for work in (*self._latest.values(), *self._late):
            work.settle(tensors)
        if self._traces.kept:
            self._traces.join(tensors, copied_only=False)

    def _settle_copies(self, tensors: Tensors) -> None:
        """Wait for all operations whose results are still to be copied to the memory of ``tensors``."""
        for work in self._late[:]:
            work.settle(tensors)
        if self._traces.kept:
            self._traces.join(tensors, copied_only=True)

    def _readable(self, tensor: torch.Tensor) -> torch.Tensor:
        if (self._latest or self._late or self._traces.kept) and not _memory.usable(tensor.detach()):
            self._settle([tensor])
        return _memory.readable(tensor)

    def _writable(self, tensor: torch.Tensor) -> torch.Tensor:
        if (self._latest or self._late or self._traces.kept) and not _memory.usable(tensor.detach()):
            self._settle([tensor])
        return _memory.writable(tensor)

    def _packed(self, tensors: Tensors) -> torch.Tensor:
        self._settle(tensors)
        return _memory.packed(tensors)

    def _begin_after_join(self) -> None:
        """In a group of all ranks, count from 0 again: before the join, some ranks started more operations."""
        self._joins = _joining.joins_ended
        if self._set.number == 0:
            self._counter = itertools.count()
            self._returned.clear()

    def _op(
        self, kind: int, name: Optional[str], source: torch.Tensor, shape: Sequence[int], target: torch.Tensor,
        of: Optional[torch.Tensor], moved: bool = True, reduce_op: int = 0, root_rank: int = 0,
        wire: int = _lib.WIRE_AS_IT_IS,
    ) -> Operation:  # fmt: skip
        """The description of an engine's operation on ``source``, as ``shape``, with its output in ``target``.

        ``of`` is a tensor of the caller's, which may be on a GPU while the others are copies in host memory. The code
        that starts the operation keeps the tensors alive.
        """
        copied = of is not None and of.is_cuda and not source.is_cuda
        given = kind in (_lib.ALLGATHER, _lib.ALLTOALL, _lib.GATHER, _lib.SCATTER)
        for tensor in (source, target):
            if tensor.data_ptr() == 0:
                check_empty(tensor, None)
        operation = pool.describe(
            None if name is None else name.encode(), shape, _cells.COPIED if copied else 0, kind,
            _memory.elements(source, moved), reduce_op, root_rank, self._set.number, 1.0, 1.0, source.data_ptr(),
            0 if given else target.data_ptr(),
        )  # fmt: skip
        operation.keeps = ((source, source.data_ptr()), (target, target.data_ptr()))
        if given:
            operation.give_output(target.data_ptr(), _memory.size(target))
        if source.is_cuda:
            _staging.check_no_capture()
            device = source.get_device()
            operation.on_device(device, _device_memory._cuda.current_stream(device).cuda_stream)
        if wire:
            operation.set_wire(wire)
        return operation

    # ---- Checks.

    def _root(self, options: Any) -> int:
        root = options.rootRank
        if not 0 <= root < self.size():
            raise ValueError(f"root rank {root} is none of the group's {self.size()}")
        return root

    def _check_share(self, whole: torch.Tensor, share: torch.Tensor, whole_is: str, share_is: str) -> None:
        if whole.dtype != share.dtype or whole.numel() != share.numel() * self.size():
            raise ValueError(
                f"the {whole_is} must have the {share_is}'s dtype and {self.size()} times its elements, but they are "
                f"{tuple(whole.shape)} of {whole.dtype} and {tuple(share.shape)} of {share.dtype}"
            )
