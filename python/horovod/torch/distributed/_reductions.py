"""The operations of a process group that combine the elements of tensors."""

from __future__ import annotations

from typing import Any, Sequence, Union

import torch
import torch.distributed as dist

from horovod.common import _facts, _lib
from horovod.common._operations import Operation
from horovod.torch.distributed import _memory
from horovod.torch.distributed._base import Base, Tensors, one
from horovod.torch.distributed._forms import forms
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


class Reductions(Base):
    """The part of a group that reduces tensors."""

    @forms("op")
    def allreduce(self, tensors: Union[torch.Tensor, Tensors], opts: Any = None) -> Work:
        """Reduce a tensor elementwise over the group, in place.

        ReduceOps: SUM, AVG (truncated for integers), MIN, MAX, PRODUCT; BAND, BOR, BXOR for integers and bool. For
        complex numbers only SUM and AVG.
        """
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

    @forms("op")
    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Reduce ``input``, of ``size()`` times the elements of ``output``, and put this rank's part there."""
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

    @forms()
    def barrier(self, opts: Any = None) -> Work:
        """Ends when all ranks have started it."""
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
