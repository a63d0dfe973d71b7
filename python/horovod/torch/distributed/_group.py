"""The process group: torch.distributed's collectives, made of the engine's."""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
from typing import Any, Callable, Optional, Sequence, Union

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from horovod.common import _facts, _lib, _operations
from horovod.common._operations import Operation
from horovod.torch._collectives import _join as _joining
from horovod.torch.distributed import _memory, _sets
from horovod.torch.distributed._messages import Message
from horovod.torch.distributed._work import Collective, Work

# What an allreduce and, with some, a reduce-scatter of the engine is called there.
_ENGINE_OPS = {"AVG" if name == "average" else name.upper(): op for name, op in _facts.reduce_ops().items()}
del _ENGINE_OPS["ADASUM"]
_SCATTERED_OPS = {name for name, op in _ENGINE_OPS.items() if op in _facts.kinds()["reducescatter"].reduce_ops}
_BITWISE = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}

# How many operations of a group have names of their own; then the names come again. What the engine knows of a
# name's last operation makes the next one cheap if it is alike, so a program's period should divide this, and the
# engine remembers 1024 of them. Operations of one name wait for one another.
_NAMES = 720

_TORCH_TAGS = 1 << 31  # of the engine's tags, those that are torch.distributed's
_USER_TAG_BITS = 20

Tensors = Sequence[torch.Tensor]


def _reduce_op(options: Any) -> str:
    """The name of an options object's ReduceOp, or of one itself. Raises ValueError for one that is not supported."""
    op = getattr(options, "reduceOp", options)
    name = getattr(op, "op", op).name
    if name not in _ENGINE_OPS and name not in _BITWISE:
        raise ValueError(f"ReduceOp.{name} is not supported by gorovod; use SUM or AVG, and scale the tensor")
    return name


def _one(tensors: Union[torch.Tensor, Tensors], what: str) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{what} takes one tensor a process, not {len(tensors)}")
    return tensors[0]


def _are_targets(outputs: Tensors, operations: Sequence[Operation]) -> bool:
    """Whether the engine writes to ``outputs`` themselves."""
    if len(outputs) == len(operations) == 1:
        return outputs[0].data_ptr() == operations[0].keeps[1][1]
    targets = [operation.keeps[1][1] for operation in operations]
    return [output.data_ptr() for output in outputs] == targets


class ProcessGroup(dist.ProcessGroup):
    """A group of ranks whose collectives run on the engine. ``torch.distributed`` makes it; all members do.

    Ranks in arguments are those in the group. Tensors may have any dtype if they are only moved, and those of
    ``horovod.torch.allreduce``, or complex ones, if they are reduced. They must be dense. They need not be contiguous,
    or in the memory of the host: then they go through copies. Every method starts the operation and returns a
    :class:`Work`, whose ``wait`` raises HorovodInternalError, a RuntimeError, where the ranks disagree about shape,
    dtype, operation or order, or a rank has died. Bad arguments are a ValueError at once.

    Example:
        >>> dist.init_process_group("gorovod", init_method="horovod://")
        >>> x = torch.tensor([1.0, 2.0])
        >>> dist.all_reduce(x)
        >>> x
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """

    def __init__(self, ranks: Sequence[int], rank: int, number: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, len(ranks))
        self._ranks = list(ranks)  # of the world
        self._rank = rank
        self._number = number  # of the group, the same on all members
        self._timeout = timeout
        self._set = _sets.acquire(self._ranks, self._rank, timeout)
        self._counter = itertools.count()
        self._joins = _joining.joins_ended  # when the counter began
        self._latest: dict[str, Collective] = {}
        self._late: list[Collective] = []  # those that bring results to their outputs when they are concluded

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """``gorovod``."""
        return "gorovod"

    _get_backend_name = getBackendName

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Number of ranks in the group."""
        return len(self._ranks)

    # PyTorch 2 keeps names in a group's backends, of which this one has none.

    group_name = ""
    group_desc = ""

    def _set_group_name(self, name: str) -> None:
        self.group_name = name

    def _set_group_desc(self, desc: str) -> None:
        self.group_desc = desc

    # ---- How everything is submitted.

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
        """Start what ``describe`` makes for a name: a collective, or those that start together, without names."""
        if self._joins != _joining.joins_ended:
            self._begin_after_join()
        name = f"torch.{self._number}.{next(self._counter) % _NAMES}"
        # One whose submission is refused has taken its name, too: other ranks count it.
        what = f"{kind} number {name.rpartition('.')[2]} of group {self._number}"
        operations = describe(name)
        if self._late:
            self._settle_late([tensor for operation in operations for tensor, _ in operation.keeps])
        in_place = not outputs or _are_targets(outputs, operations)
        work = Collective(what, name, outputs, self._limit(options), operations, describe, finish, self._latest)
        if not in_place:
            self._late.append(work)
        return work

    # Operations on the same memory run in the order of the calls. The engine sees to that where it works on the memory
    # itself. Where it works on copies, the caller waits for the earlier operation.

    def _settle(self, tensors: Tensors) -> None:
        """Wait for all that is under way on the memory of ``tensors``, from or to which something is to be copied."""
        for work in list(self._latest.values()):
            work.settle(tensors)

    def _settle_late(self, tensors: Tensors) -> None:
        """Wait for all that is still to copy its results to the memory of ``tensors``."""
        for work in self._late[:]:
            work.settle(tensors)
            if work.is_over():
                with contextlib.suppress(ValueError):  # another thread has done it
                    self._late.remove(work)

    def _readable(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._latest and not _memory.usable(tensor.detach()):
            self._settle([tensor])
        return _memory.readable(tensor)

    def _writable(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._latest and not _memory.usable(tensor.detach()):
            self._settle([tensor])
        return _memory.writable(tensor)

    def _packed(self, tensors: Tensors) -> torch.Tensor:
        self._settle(tensors)
        return _memory.packed(tensors)

    def _begin_after_join(self) -> None:
        """Count from 0 again in a group of all ranks: until the join, some ranks have started more operations."""
        self._joins = _joining.joins_ended
        if self._set.number == 0:
            self._counter = itertools.count()

    def _op(
        self, kind: int, name: Optional[str], source: torch.Tensor, shape: Sequence[int], target: torch.Tensor,
        moved: bool = True, reduce_op: int = 0, root_rank: int = 0, wire: int = _lib.WIRE_AS_IT_IS,
    ) -> Operation:  # fmt: skip
        """The description of an engine's operation on ``source``, seen in ``shape``, with its output in ``target``.

        Whoever starts it keeps the tensors alive.
        """
        given = kind in (_lib.ALLGATHER, _lib.ALLTOALL)
        operation = _operations.describe(
            None if name is None else name.encode(), shape, 0, kind, _memory.elements(source, moved), reduce_op,
            root_rank, self._set.number, 1.0, 1.0, source.data_ptr(), 0 if given else target.data_ptr(),
        )  # fmt: skip
        operation.keeps = ((source, source.data_ptr()), (target, target.data_ptr()))
        if given:
            operation.give_output(target.data_ptr(), _memory.size(target))
        if wire:
            operation.set_wire(wire)
        operation.set_stream(self._number)
        return operation

    # ---- Reductions.

    def allreduce(self, tensors: Union[torch.Tensor, Tensors], opts: Any = None) -> Work:
        """Reduce a tensor elementwise over the group, in place.

        ReduceOps: SUM, AVG (of integers truncated), MIN, MAX, PRODUCT; BAND, BOR, BXOR of integers and bool. Complex
        numbers can be added only: SUM, AVG.
        """
        return self._allreduce([_one(tensors, "allreduce")], opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """As :meth:`allreduce`, of several tensors at once, which start together."""
        return self._allreduce(list(tensors), opts)

    def _allreduce(self, tensors: Tensors, opts: Any, wire: int = _lib.WIRE_AS_IT_IS) -> Work:
        """``wire`` is how float32 and float64 travel between hosts."""
        opts = dist.ReduceOp.SUM if opts is None else opts
        op = _reduce_op(opts)
        if op in _BITWISE:
            return self._allreduce_bits(tensors, op, opts)
        hosts = [self._readable(t) for t in tensors]
        parts = [_memory.reducible(h, op) for h in hosts]

        def describe(name: str) -> list[Operation]:
            return [
                self._op(
                    _lib.ALLREDUCE, name if len(parts) == 1 else None, h, h.shape, h, False,
                    reduce_op=_ENGINE_OPS[op], wire=wire,
                )
                for h in parts
            ]  # fmt: skip

        def finish(_: Sequence[int]) -> None:
            for host, tensor in zip(hosts, tensors):
                _memory.store(host, tensor)

        return self._start("allreduce", describe, tensors, opts, finish)

    def _allreduce_bits(self, tensors: Tensors, op: str, opts: Any) -> Work:
        for tensor in tensors:
            if tensor.is_floating_point() or tensor.is_complex():
                raise ValueError(f"ReduceOp.{op} is for integers and bool, not for {tensor.dtype}")
        hosts = [self._readable(t) for t in tensors]
        self._settle(tensors)
        gathered = [torch.empty((self.size(), *h.shape), dtype=h.dtype) for h in hosts]

        def describe(name: str) -> list[Operation]:
            return [
                self._op(_lib.ALLGATHER, name if len(hosts) == 1 else None, h, (1, *h.shape), g, False)
                for h, g in zip(hosts, gathered)
            ]

        def finish(_: Sequence[int]) -> None:
            for parts, tensor in zip(gathered, tensors):
                tensor.detach().copy_(functools.reduce(_BITWISE[op], parts))

        return self._start("allreduce", describe, tensors, opts, finish)

    def reduce(self, tensors: Union[torch.Tensor, Tensors], opts: Any) -> Work:
        """As :meth:`allreduce`, but only rank ``opts.rootRank`` gets the result; the other tensors stay as they are."""
        tensor, root, op = _one(tensors, "reduce"), self._root(opts), _reduce_op(opts)
        mine = root == self._rank
        if op in _BITWISE:
            self._settle([tensor])
            return self.allreduce([tensor if mine else tensor.detach().clone()], opts)
        host = self._readable(tensor)
        part = _memory.reducible(host, op)

        def describe(name: str) -> list[Operation]:
            return [
                self._op(
                    _facts.kinds()["reduce"].number, name, part, part.shape, part, False,
                    reduce_op=_ENGINE_OPS[op], root_rank=self._ranks[root],
                )
            ]  # fmt: skip

        def finish(_: Sequence[int]) -> None:
            if mine:
                _memory.store(host, tensor)

        return self._start("reduce", describe, [tensor], opts, finish)

    def reduce_scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any = None) -> Work:
        """Reduce a list of tensors, one for each rank; each gets its own in its output. ReduceOps as :meth:`allreduce`.

        All must have one size and dtype.
        """
        output, inputs = _one(output_tensors, "reduce_scatter"), list(input_tensors[0])
        _memory.same_size(inputs, self.size(), "the inputs of reduce_scatter", output)
        return self._reduce_scatter([output], [self._packed(inputs)], opts)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Reduce ``input``, of ``size()`` times the elements of ``output``, and leave this rank's part there."""
        return self._reduce_scatter([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """As reduce_scatter_tensor, of several tensors at once, which start together."""
        return self._reduce_scatter(list(outputs), list(inputs), opts)

    def _reduce_scatter(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        opts = dist.ReduceOp.SUM if opts is None else opts
        op = _reduce_op(opts)
        n = self.size()
        for output, input in zip(outputs, inputs):
            self._check_share(input, output, "input", "output")
        if op not in _SCATTERED_OPS:
            return self._reduce_and_cut(outputs, inputs, opts)
        sources = [self._readable(t) for t in inputs]
        targets = [self._writable(t) for t in outputs]
        parts = [(_memory.reducible(s, op), _memory.reducible(t, op)) for s, t in zip(sources, targets)]

        def describe(name: str) -> list[Operation]:
            return [
                self._op(
                    _lib.REDUCESCATTER, name if len(parts) == 1 else None, s, (n, t.numel()), t, False,
                    reduce_op=_ENGINE_OPS[op],
                )
                for s, t in parts
            ]  # fmt: skip

        def finish(_: Sequence[int]) -> None:
            for target, output in zip(targets, outputs):
                _memory.store(target, output)

        return self._start("reduce_scatter", describe, outputs, opts, finish)

    def _reduce_and_cut(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """For operations with which the engine does not scatter."""
        self._settle([*inputs, *outputs])
        whole = [t.detach().clone(memory_format=torch.contiguous_format) for t in inputs]
        work = self._allreduce(whole, opts)
        reduced = work._finish

        def finish(handles: Sequence[int]) -> None:
            reduced(handles)
            for tensor, output in zip(whole, outputs):
                mine = tensor.view(self.size(), -1)[self._rank]
                output.detach().copy_(mine.view(output.shape))

        self._late.append(work)
        return work._finish_with(finish, outputs)

    def _check_share(self, whole: torch.Tensor, share: torch.Tensor, whole_is: str, share_is: str) -> None:
        if whole.dtype != share.dtype or whole.numel() != share.numel() * self.size():
            raise ValueError(
                f"the {whole_is} must have the {share_is}'s dtype and {self.size()} times its elements, but they are "
                f"{tuple(whole.shape)} of {whole.dtype} and {tuple(share.shape)} of {share.dtype}"
            )

    # ---- What only moves.

    def _root(self, options: Any) -> int:
        root = options.rootRank
        if not 0 <= root < self.size():
            raise ValueError(f"root rank {root} is none of the group's {self.size()}")
        return root

    def broadcast(self, tensors: Union[torch.Tensor, Tensors], opts: Any = None) -> Work:
        """Copy the tensor of rank ``opts.rootRank`` to the tensors of all."""
        tensor = _one(tensors, "broadcast")
        opts = c10d.BroadcastOptions() if opts is None else opts
        root = self._ranks[self._root(opts)]
        host = self._readable(tensor)
        shape = host.shape if _memory.rows(host) == host.numel() else (_memory.rows(host),)
        return self._start(
            "broadcast", lambda name: [self._op(_lib.BROADCAST, name, host, shape, host, root_rank=root)], [tensor],
            opts, lambda _: _memory.store(host, tensor),
        )  # fmt: skip

    def allgather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any = None) -> Work:
        """Copy the tensors of all ranks into a list of tensors, by rank. All must have one size and dtype."""
        outputs, input = list(output_tensors[0]), _one(input_tensors, "allgather")
        _memory.same_size(outputs, self.size(), "the outputs of allgather", input)
        self._settle(outputs)
        gathered = torch.empty(input.numel() * self.size(), dtype=input.dtype)
        return self._gather_all([gathered], [input], outputs, opts, lambda _: _memory.unpack(gathered, outputs))

    def allgather_coalesced(self, output_lists: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """As :meth:`allgather`, of several tensors at once: ``output_lists[rank]`` has one for each of ``inputs``."""
        for i, input in enumerate(inputs):
            _memory.same_size([o[i] for o in output_lists], self.size(), "the outputs of allgather_coalesced", input)
        self._settle([t for outputs in output_lists for t in outputs])
        gathered = [torch.empty(t.numel() * self.size(), dtype=t.dtype) for t in inputs]

        def finish(_: Sequence[int]) -> None:
            for i, flat in enumerate(gathered):
                _memory.unpack(flat, [outputs[i] for outputs in output_lists])

        return self._gather_all(gathered, inputs, [t for outputs in output_lists for t in outputs], opts, finish)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Copy the tensors of all ranks into ``output``, of ``size()`` times the elements, one after the other."""
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """As all_gather_into_tensor, of several tensors at once, which start together."""
        for output, input in zip(outputs, inputs):
            self._check_share(output, input, "output", "input")
        targets = [self._writable(t) for t in outputs]

        def finish(_: Sequence[int]) -> None:
            for target, output in zip(targets, outputs):
                _memory.store(target, output)

        return self._gather_all(targets, inputs, list(outputs), opts, finish)

    def _gather_all(
        self, targets: Tensors, inputs: Tensors, outputs: Tensors, opts: Any, finish: Callable[[Sequence[int]], None]
    ) -> Work:
        sources = [self._readable(t) for t in inputs]

        def describe(name: str) -> list[Operation]:
            # One row each: rows of other lengths are a mismatch, which all ranks are told.
            return [
                self._op(
                    _lib.ALLGATHER, name if len(sources) == 1 else None, s, (1, _memory.rows(s)), t
                )
                for s, t in zip(sources, targets)
            ]  # fmt: skip

        return self._start("allgather", describe, outputs, opts, finish)

    def gather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any) -> Work:
        """Copy the tensors of all ranks into a list of tensors on rank ``opts.rootRank``; elsewhere it is empty."""
        input = _one(input_tensors, "gather")
        root = self._root(opts)
        outputs = list(output_tensors[0]) if self._rank == root else []
        if self._rank == root:
            _memory.same_size(outputs, self.size(), "the outputs of gather", input)
            self._settle(outputs)
        source = self._readable(input).reshape(1, -1)
        gathered = torch.empty(input.numel() * len(outputs), dtype=input.dtype)
        splits = [int(r == root) for r in range(self.size())]
        return self._exchange(
            "gather", source, gathered, (1, _memory.rows(source)), splits, outputs, opts,
            lambda _: _memory.unpack(gathered, outputs),
        )  # fmt: skip

    def scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any) -> Work:
        """Copy a list of tensors of rank ``opts.rootRank``, one to each rank; elsewhere the list is empty."""
        output = _one(output_tensors, "scatter")
        root = self._root(opts)
        if self._rank == root:
            inputs = list(input_tensors[0])
            _memory.same_size(inputs, self.size(), "the inputs of scatter", output)
        else:
            inputs = []
        source = self._packed(inputs) if inputs else torch.empty(0, dtype=output.dtype)
        target = self._writable(output)
        return self._exchange(
            "scatter", source, target, (len(inputs), _memory.rows(target)), [int(bool(inputs))] * self.size(),
            [output], opts, lambda _: _memory.store(target, output),
        )  # fmt: skip

    def _exchange(
        self, kind: str, source: torch.Tensor, target: torch.Tensor, shape: Sequence[int], splits: Sequence[int],
        outputs: Tensors, opts: Any, finish: Callable[[Sequence[int]], None],
    ) -> Work:  # fmt: skip
        """An alltoall of the engine's, of ``splits`` rows of ``source`` in ``shape``."""

        def describe(name: str) -> list[Operation]:
            operation = self._op(_lib.ALLTOALL, name, source, shape, target)
            operation.set_splits(splits)
            return [operation]

        return self._start(kind, describe, outputs, opts, finish)

    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Optional[Sequence[int]] = None,
        input_split_sizes: Optional[Sequence[int]] = None,
        opts: Any = None,
    ) -> Work:
        """Send rows of ``input`` to each rank, and put those of each into ``output``, by rank.

        The split sizes are how many rows of the first dimension go to, and come from, each rank; none: equal parts.
        """
        sent, received = list(input_split_sizes or ()), list(output_split_sizes or ())
        if input.dtype != output.dtype:
            raise ValueError(f"input and output must have one dtype, not {input.dtype} and {output.dtype}")
        for tensor, splits, what in ((input, sent, "input"), (output, received, "output")):
            length = tensor.shape[0] if tensor.dim() else 1
            if splits and (len(splits) != self.size() or sum(splits) != length or min(splits) < 0):
                raise ValueError(
                    f"the split sizes {splits} of the {what} must be {self.size()} numbers that add up to {length}"
                )
            if not splits and length % self.size():
                raise ValueError(f"the {what}'s {length} rows cannot be divided equally among {self.size()} ranks")
        source, target = self._readable(input), self._writable(output)
        rows = source.shape[0] if source.dim() else 1
        each = _memory.rows(source) // rows if rows else _memory.rows(source.new_empty((1, *source.shape[1:])))
        sent = sent or [rows // self.size()] * self.size()
        expected = received or [(target.shape[0] if target.dim() else 1) // self.size()] * self.size()

        def finish(handles: Sequence[int]) -> None:
            came = _lib.received_splits(handles[0])
            if came != expected:
                raise ValueError(f"alltoall brought {came} rows, but the output was to take {expected}")
            _memory.store(target, output)

        return self._exchange("alltoall", source, target, (rows, each), sent, [output], opts, finish)

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> Work:
        """Send a tensor to each rank, and take one of each. Sizes may differ, dtypes not."""
        outputs, inputs = list(output_tensors), list(input_tensors)
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(f"alltoall takes {self.size()} tensors for input and output, one for each rank")
        source = self._packed(inputs)
        self._settle(outputs)
        target = torch.empty(sum(t.numel() for t in outputs), dtype=outputs[0].dtype)
        work = self.alltoall_base(target, source, [t.numel() for t in outputs], [t.numel() for t in inputs], opts)
        exchanged = work._finish

        def finish(handles: Sequence[int]) -> None:
            exchanged(handles)
            _memory.unpack(target, outputs)

        self._late.append(work)
        return work._finish_with(finish, outputs)

    def barrier(self, opts: Any = None) -> Work:
        """Ends when all ranks have started it."""
        here = torch.zeros(1, dtype=torch.uint8)
        return self._start(
            "barrier",
            lambda name: [self._op(_lib.ALLREDUCE, name, here, here.shape, here, reduce_op=_ENGINE_OPS["MAX"])],
            [],
            opts,
        )

    # ---- Messages.

    def _tag(self, tag: int) -> int:
        if not 0 <= tag < 1 << _USER_TAG_BITS:
            raise ValueError(f"tag {tag} is out of range: it must be from 0 to {(1 << _USER_TAG_BITS) - 1}")
        return _TORCH_TAGS | (1 + self._number % 2047) << _USER_TAG_BITS | tag

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.size():
            raise ValueError(f"rank {rank} is none of the group's {self.size()}")
        return self._ranks[rank]

    def send(self, tensors: Union[torch.Tensor, Tensors], dst: int, tag: int = 0) -> Work:
        """Send a tensor to a rank. Ends when the tensor may be changed, perhaps before anybody has received it.

        Those of one tag, from 0 to 2**20 - 1, arrive in order.
        """
        tensor, to, number = _one(tensors, "send"), self._peer(dst), self._tag(tag)
        host = _memory.readable(tensor)

        def transfer() -> None:
            _lib.send(to, number, _memory.dtype_label(host.dtype), host.data_ptr(), _memory.size(host))

        return Message(f"send to rank {dst} with tag {tag}", [tensor], self._timeout, ("to", to), transfer)

    def recv(self, tensors: Union[torch.Tensor, Tensors], src: int, tag: int = 0) -> Work:
        """Receive a tensor from a rank, which must have sent as many elements of the same dtype."""
        self._peer(src)
        return self._recv(_one(tensors, "recv"), src, tag)

    def recv_anysource(self, tensors: Union[torch.Tensor, Tensors], tag: int = 0) -> Work:
        """Receive a tensor from any rank; ``source_rank()`` of the Work is the one it has come from."""
        return self._recv(_one(tensors, "recv_anysource"), None, tag)

    def _recv(self, tensor: torch.Tensor, src: Optional[int], tag: int) -> Work:
        source, number = None if src is None else self._ranks[src], self._tag(tag)
        host = _memory.writable(tensor)

        def transfer() -> int:
            mine = (_memory.size(host), _memory.dtype_label(host.dtype))
            sender, *sent = _lib.recv(source, number, host.data_ptr(), mine[0])
            rank = self._ranks.index(sender)
            if (sent[0], sent[1]) != mine:
                raise ValueError(
                    f"the tensor that rank {rank} has sent has {_memory.described(*sent)}, "
                    f"that to receive it {_memory.described(*mine)}"
                )
            _memory.store(host, tensor)
            return rank

        name = f"receive from {'any rank' if src is None else f'rank {src}'} with tag {tag}"
        return Message(name, [tensor], self._timeout, ("from", source, number), transfer)

    def gather_single(self, output: Optional[torch.Tensor], input: torch.Tensor, opts: Any) -> Work:
        """As :meth:`gather`, into one tensor of ``size()`` times the elements; None except on the root."""
        parts = []
        if output is not None and self._rank == self._root(opts):
            self._check_share(output, input, "output", "input")
            if not output.is_contiguous():
                raise ValueError("the output of gather_single must be contiguous")
            parts = [list(output.view(self.size(), *input.shape).unbind())]
        return self.gather(parts, [input], opts)

    # ---- What torch.distributed asks for besides.

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Give later operations another time-out."""
        self._timeout = timeout

    # PyTorch 2 asks a group's backends for what they support. This group has none; it answers itself.

    supports_coalescing = False
    supports_splitting = False

    def _get_backend(self, _: torch.device) -> ProcessGroup:
        return self

    # Newer names.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _start_coalescing(self, *_: Any) -> None:
        """Operations start at once; nothing has to be collected."""

    def _end_coalescing(self, *_: Any) -> None:
        """See :meth:`_start_coalescing`."""

    def _set_sequence_number_for_group(self) -> None:
        """Operations are counted from 0 anyway."""
