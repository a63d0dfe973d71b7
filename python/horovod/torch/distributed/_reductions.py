"""The operations of a process group that combine the elements of tensors."""

from __future__ import annotations

from typing import Any, Sequence, Union

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from horovod.common import _facts, _lib
from horovod.common._operations import Operation
from horovod.torch.distributed import _memory
from horovod.torch.distributed._base import Tensors, one
from horovod.torch.distributed._forms import forms
from horovod.torch.distributed._short import Short, blocking, code_of
from horovod.torch.distributed._work import Work

# The engine's reduce operations, by torch.distributed's names.
_ENGINE_OPS = {"AVG" if name == "average" else name.upper(): op for name, op in _facts.reduce_ops().items()}
del _ENGINE_OPS["ADASUM"]


def _reduce_op(options: Any) -> str:
    """The name of a ReduceOp, or of that in an options object. Raises ValueError for one that is not supported."""
    op = getattr(options, "reduceOp", options)
    name = getattr(op, "op", op).name
    if name not in _ENGINE_OPS:
        raise ValueError(f"ReduceOp.{name} is not supported by gorovod; use SUM or AVG, and scale the tensor")
    return name


def _engine_ops() -> dict[int, int]:
    """The engine's reduce operations, by the hash of PyTorch's, which is their number; empty if it is not."""
    names = [name for name in (*_ENGINE_OPS, "PREMUL_SUM") if hasattr(dist.ReduceOp, name)]
    hashes = [hash(getattr(dist.ReduceOp, name)) for name in names]
    if len(set(hashes)) < len(names):
        return {}
    return {number: _ENGINE_OPS[name] for number, name in zip(hashes, names) if name in _ENGINE_OPS}


_BY_HASH = _engine_ops()
# The same by identity, for the objects that programs pass.
_OBJECTS = [getattr(dist.ReduceOp, name) for name in _ENGINE_OPS if hasattr(dist.ReduceOp, name)]
_BY_ID = {id(op): _BY_HASH[hash(op)] for op in _OBJECTS if hash(op) in _BY_HASH}
_ALL_REDUCE, _BARRIER = code_of("all_reduce"), code_of("barrier")
_REDUCE_SCATTER = code_of("reduce_scatter_single", "reduce_scatter_tensor")


class Reductions(Short):
    """The part of a group that reduces tensors."""

    def allreduce(self, tensors: Any, opts: Any = None, *rest: Any, **named: Any) -> Work:
        """Reduce a tensor elementwise over the group, in place.

        ReduceOps: SUM, AVG (truncated for integers), MIN, MAX, PRODUCT; BAND, BOR, BXOR for integers and bool. For
        complex numbers only SUM and AVG.
        """
        if type(opts) is c10d.AllreduceOptions and not rest and not named and self._takes_short_way():
            given = blocking(_ALL_REDUCE)
            op = None if given is None else _BY_ID.get(id(given.get("op")))
            if op is None:
                op = _BY_HASH.get(hash(opts.reduceOp))
            if op is not None and type(tensors) is list and len(tensors) == 1:
                x = tensors[0]
                work = self._run("allreduce", _lib.ALLREDUCE, x, x, opts, op, 0, given is not None)
                if work is not None:
                    return work
        return self._long_allreduce(tensors, opts, *rest, **named)

    @forms("op")
    def _long_allreduce(self, tensors: Union[torch.Tensor, Tensors], opts: Any = None) -> Work:
        return self._allreduce([one(tensors, "allreduce")], opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """As :meth:`allreduce`, for several tensors at once, which start together."""
        return self._allreduce(list(tensors), opts)

    def _allreduce(self, tensors: Tensors, opts: Any, wire: int = _lib.WIRE_AS_IT_IS) -> Work:
        """``wire`` is the form in which float32 and float64 travel between hosts."""
        opts = dist.ReduceOp.SUM if opts is None else opts
        op = _reduce_op(opts)
        hosts = [self._readable(t) for t in tensors]
        parts = [_memory.reducible(h, op) for h in hosts]

        def describe(name: str) -> list[Operation]:
            return [
                self._op(
                    _lib.ALLREDUCE, name if len(parts) == 1 else None, h, h.shape, h, t, False,
                    reduce_op=_ENGINE_OPS[op], wire=wire,
                )
                for h, t in zip(parts, tensors)
            ]  # fmt: skip

        def finish(_: Sequence[int]) -> None:
            for host, tensor in zip(hosts, tensors):
                _memory.store(host, tensor)

        return self._start("allreduce", describe, tensors, opts, finish)

    @forms("root", "op")
    def reduce(self, tensors: Union[torch.Tensor, Tensors], opts: Any) -> Work:
        """As :meth:`allreduce`, but only rank ``opts.rootRank`` gets the result; the other tensors stay as they are."""
        tensor, root, op = one(tensors, "reduce"), self._root(opts), _reduce_op(opts)
        mine = root == self._rank
        host = self._readable(tensor)
        part = _memory.reducible(host, op)

        def describe(name: str) -> list[Operation]:
            return [
                self._op(
                    _facts.kinds()["reduce"].number, name, part, part.shape, part, tensor, False,
                    reduce_op=_ENGINE_OPS[op], root_rank=self._ranks[root],
                )
            ]  # fmt: skip

        def finish(_: Sequence[int]) -> None:
            if mine:
                _memory.store(host, tensor)

        return self._start("reduce", describe, [tensor], opts, finish)

    @forms("op", lists=1)
    def reduce_scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any = None) -> Work:
        """Reduce a list of tensors, one for each rank; each rank gets its own. ReduceOps as for :meth:`allreduce`.

        All tensors must have one size and dtype.
        """
        output, inputs = one(output_tensors, "reduce_scatter"), list(input_tensors[0])
        _memory.same_size(inputs, self.size(), "the inputs of reduce_scatter", output)
        return self._reduce_scatter([output], [self._packed(inputs)], opts)

    def _reduce_scatter_base(self, output: Any, input: Any, opts: Any = None, *rest: Any, **named: Any) -> Work:
        """Reduce ``input``, of ``size()`` times the elements of ``output``, and put this rank's part there."""
        if type(opts) is c10d.ReduceScatterOptions and not rest and not named and self._takes_short_way():
            given = blocking(_REDUCE_SCATTER)
            op = None if given is None else _BY_ID.get(id(given.get("op")))
            if op is None:
                op = _BY_HASH.get(hash(opts.reduceOp))
            if op is not None:
                work = self._run("reduce_scatter", _lib.REDUCESCATTER, input, output, opts, op, 0, given is not None)
                if work is not None:
                    return work
        return self._long_reduce_scatter_base(output, input, opts, *rest, **named)

    @forms("op")
    def _long_reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        return self._reduce_scatter([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """As reduce_scatter_tensor, for several tensors at once, which start together."""
        return self._reduce_scatter(list(outputs), list(inputs), opts)

    def _reduce_scatter(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        opts = dist.ReduceOp.SUM if opts is None else opts
        op = _reduce_op(opts)
        n = self.size()
        for output, input in zip(outputs, inputs):
            self._check_share(input, output, "input", "output")
        sources = [self._readable(t) for t in inputs]
        targets = [self._writable(t) for t in outputs]
        parts = [(_memory.reducible(s, op), _memory.reducible(t, op)) for s, t in zip(sources, targets)]

        def describe(name: str) -> list[Operation]:
            return [
                self._op(
                    _lib.REDUCESCATTER, name if len(parts) == 1 else None, s, (n, t.numel()), t, outputs[i], False,
                    reduce_op=_ENGINE_OPS[op],
                )
                for i, (s, t) in enumerate(parts)
            ]  # fmt: skip

        def finish(_: Sequence[int]) -> None:
            for target, output in zip(targets, outputs):
                _memory.store(target, output)

        return self._start("reduce_scatter", describe, outputs, opts, finish)

    def barrier(self, opts: Any = None, *rest: Any, **named: Any) -> Work:
        """Ends when all ranks have started it."""
        if type(opts) is c10d.BarrierOptions and not rest and not named and self._takes_short_way():
            waits = blocking(_BARRIER) is not None
            work = self._run("barrier", _lib.NAMED_BARRIER, None, None, opts, 0, 0, waits)
            if work is not None:
                return work
        return self._long_barrier(opts, *rest, **named)

    @forms()
    def _long_barrier(self, opts: Any = None) -> Work:
        here = torch.empty(0, dtype=torch.uint8, device="cpu")
        return self._start(
            "barrier",
            lambda name: [self._op(_lib.NAMED_BARRIER, name, here, here.shape, here, None)],
            [],
            opts,
        )

    # Newer names.
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
