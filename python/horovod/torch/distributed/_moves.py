"""The operations of a process group that only move tensors."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

import torch
from torch._C import _distributed_c10d as c10d

from horovod.common import _lib
from horovod.common._operations import Operation
from horovod.torch.distributed import _memory
from horovod.torch.distributed._base import Tensors, one
from horovod.torch.distributed._forms import forms
from horovod.torch.distributed._short import Short, blocking, code_of
from horovod.torch.distributed._work import Work

_BROADCAST, _ALL_TO_ALL = code_of("broadcast"), code_of("all_to_all_single")
_ALL_GATHER = code_of("all_gather_single", "all_gather_into_tensor")


def _check_rows(came: list[int], expected: list[int]) -> None:
    if came != expected:
        raise ValueError(f"alltoall brought {came} rows, but the output was to take {expected}")


class Moves(Short):
    """The part of a group that moves tensors between all ranks."""

    def broadcast(self, tensors: Any, opts: Any = None, *rest: Any, **named: Any) -> Work:
        """Copy the tensor of rank ``opts.rootRank`` to the tensors of all ranks."""
        if type(opts) is c10d.BroadcastOptions and not rest and not named and self._takes_short_way():
            root = opts.rootRank
            if 0 <= root < len(self._ranks) and type(tensors) is list and len(tensors) == 1:
                x, waits = tensors[0], blocking(_BROADCAST) is not None
                work = self._run("broadcast", _lib.BROADCAST, x, x, opts, 0, self._ranks[root], waits)
                if work is not None:
                    return work
        return self._long_broadcast(tensors, opts, *rest, **named)

    @forms("root")
    def _long_broadcast(self, tensors: Union[torch.Tensor, Tensors], opts: Any = None) -> Work:
        tensor = one(tensors, "broadcast")
        opts = c10d.BroadcastOptions() if opts is None else opts
        root = self._ranks[self._root(opts)]
        host = self._readable(tensor)
        shape = host.shape if _memory.rows(host) == host.numel() else (_memory.rows(host),)
        return self._start(
            "broadcast", lambda name: [self._op(_lib.BROADCAST, name, host, shape, host, tensor, root_rank=root)],
            [tensor], opts, lambda _: _memory.store(host, tensor),
        )  # fmt: skip

    @forms(lists=0)
    def allgather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any = None) -> Work:
        """Copy the tensors of all ranks into a list of tensors, by rank. All must have one size and dtype."""
        outputs, input = list(output_tensors[0]), one(input_tensors, "allgather")
        _memory.same_size(outputs, self.size(), "the outputs of allgather", input)
        self._settle(outputs)
        gathered = _memory.empty(input.numel() * self.size(), input)
        return self._gather_all([gathered], [input], outputs, opts, lambda _: _memory.unpack(gathered, outputs))

    def allgather_coalesced(self, output_lists: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """As :meth:`allgather`, for several tensors at once: ``output_lists[rank]`` has one for each of ``inputs``."""
        for i, input in enumerate(inputs):
            _memory.same_size([o[i] for o in output_lists], self.size(), "the outputs of allgather_coalesced", input)
        self._settle([t for outputs in output_lists for t in outputs])
        gathered = [_memory.empty(t.numel() * self.size(), t) for t in inputs]

        def finish(_: Sequence[int]) -> None:
            for i, flat in enumerate(gathered):
                _memory.unpack(flat, [outputs[i] for outputs in output_lists])

        return self._gather_all(gathered, inputs, [t for outputs in output_lists for t in outputs], opts, finish)

    def _allgather_base(self, output: Any, input: Any, opts: Any = None, *rest: Any, **named: Any) -> Work:
        """Copy the tensors of all ranks into ``output``, of ``size()`` times the elements, one after the other."""
        plain = opts is None or type(opts) is c10d.AllgatherOptions
        if plain and not rest and not named and self._takes_short_way():
            waits = blocking(_ALL_GATHER) is not None
            work = self._run("allgather", _lib.ALLGATHER, input, output, opts, 0, 0, waits)
            if work is not None:
                return work
        return self._long_allgather_base(output, input, opts, *rest, **named)

    @forms()
    def _long_allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """As all_gather_into_tensor, for several tensors at once, which start together."""
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
            # One row each: if rows have other lengths, all ranks are told of the mismatch.
            return [
                self._op(
                    _lib.ALLGATHER, name if len(sources) == 1 else None, s, (1, _memory.rows(s)), t, i
                )
                for s, t, i in zip(sources, targets, inputs)
            ]  # fmt: skip

        return self._start("allgather", describe, outputs, opts, finish)

    @forms("root", lists=0)
    def gather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any) -> Work:
        """Copy the tensors of all ranks into a list on rank ``opts.rootRank``; elsewhere the list is empty."""
        input = one(input_tensors, "gather")
        root = self._root(opts)
        outputs = list(output_tensors[0]) if self._rank == root else []
        if self._rank == root:
            _memory.same_size(outputs, self.size(), "the outputs of gather", input)
            self._settle(outputs)
        source = self._readable(input).reshape(1, -1)
        gathered = _memory.empty(input.numel() * len(outputs), input)
        splits = [int(r == root) for r in range(self.size())]
        return self._exchange(
            "gather", source, gathered, input, (1, _memory.rows(source)), splits, outputs, opts,
            lambda _: _memory.unpack(gathered, outputs), _lib.GATHER, root,
        )  # fmt: skip

    def gather_single(self, output: Optional[torch.Tensor], input: torch.Tensor, opts: Any) -> Work:
        """As :meth:`gather`, into one tensor of ``size()`` times the elements; None except on the root."""
        parts = []
        if output is not None and self._rank == self._root(opts):
            self._check_share(output, input, "output", "input")
            if not output.is_contiguous():
                raise ValueError("the output of gather_single must be contiguous")
            parts = [list(output.view(self.size(), *input.shape).unbind())]
        return self.gather(parts, [input], opts)

    @forms("root", lists=1)
    def scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any) -> Work:
        """Copy a list of tensors of rank ``opts.rootRank``, one to each rank; elsewhere the list is empty."""
        output = one(output_tensors, "scatter")
        root = self._root(opts)
        if self._rank == root:
            inputs = list(input_tensors[0])
            _memory.same_size(inputs, self.size(), "the inputs of scatter", output)
        else:
            inputs = []
        source = self._packed(inputs) if inputs else _memory.empty(0, output)
        target = self._writable(output)
        return self._exchange(
            "scatter", source, target, output, (len(inputs), _memory.rows(target)), [int(bool(inputs))] * self.size(),
            [output], opts, lambda _: _memory.store(target, output), _lib.SCATTER, root,
        )  # fmt: skip

    def _exchange(
        self, kind: str, source: torch.Tensor, target: torch.Tensor, of: torch.Tensor, shape: Sequence[int],
        splits: Sequence[int], outputs: Tensors, opts: Any, finish: Callable[[Sequence[int]], None],
        number: int = _lib.ALLTOALL, root: int = 0,
    ) -> Work:  # fmt: skip
        """The engine's alltoall, gather or scatter of ``splits`` rows of ``source``, as ``shape``."""

        def describe(name: str) -> list[Operation]:
            operation = self._op(number, name, source, shape, target, of, root_rank=self._ranks[root])
            operation.set_splits(splits)
            return [operation]

        return self._start(kind, describe, outputs, opts, finish)

    def alltoall_base(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        opts: Any = None,
        *rest: Any,
        **named: Any,
    ) -> Work:
        """Send rows of ``input`` to each rank, and put the rows from each rank into ``output``, by rank.

        The split sizes are how many rows of the first dimension go to, and come from, each rank. Without them: equal
        parts.
        """
        plain = type(opts) is c10d.AllToAllOptions and not output_split_sizes and not input_split_sizes
        if plain and not rest and not named and self._takes_short_way():
            waits = blocking(_ALL_TO_ALL) is not None
            work = self._run("alltoall", _lib.ALLTOALL, input, output, opts, 0, self._ranks[0], waits)
            if work is not None:
                return work
        return self._long_alltoall_base(
            output, input, output_split_sizes, input_split_sizes, opts, *rest, **named
        )  # fmt: skip

    def _same_rows(self, output: torch.Tensor) -> Callable[[Sequence[int]], None]:
        """A check of an alltoall that has brought as many rows from each rank."""
        members = len(self._ranks)
        return lambda handles: _check_rows(_lib.received_splits(handles[0]), [output.shape[0] // members] * members)

    @forms()
    def _long_alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Optional[Sequence[int]] = None,
        input_split_sizes: Optional[Sequence[int]] = None,
        opts: Any = None,
    ) -> Work:
        return self._alltoall(output, input, output_split_sizes, input_split_sizes, opts, input)

    def _alltoall(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Optional[Sequence[int]],
        input_split_sizes: Optional[Sequence[int]],
        opts: Any,
        of: torch.Tensor,
        parts: Optional[Tensors] = None,
    ) -> Work:
        """As :meth:`alltoall_base`. ``parts`` are the outputs in place of ``output``, whose parts they get."""
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
            _check_rows(_lib.received_splits(handles[0]), expected)
            _memory.store(target, output)
            if parts is not None:
                _memory.unpack(output, parts)

        outputs = [output] if parts is None else parts
        return self._exchange("alltoall", source, target, of, (rows, each), sent, outputs, opts, finish)

    @forms()
    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> Work:
        """Send a tensor to each rank, and receive one from each. Sizes may differ, dtypes may not."""
        outputs, inputs = list(output_tensors), list(input_tensors)
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(f"alltoall takes {self.size()} tensors for input and output, one for each rank")
        _memory.check_written(outputs, "alltoall")
        source = self._packed(inputs)
        self._settle(outputs)
        target = _memory.empty(sum(t.numel() for t in outputs), outputs[0])
        sizes = [t.numel() for t in outputs], [t.numel() for t in inputs]
        return self._alltoall(target, source, *sizes, opts, inputs[0], outputs)

    # Newer names.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    all_to_all_single = alltoall_base
    gather_into_tensor = gather_single
