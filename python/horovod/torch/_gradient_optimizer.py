"""The optimizer on reduced gradients: DistributedOptimizer with any operation except Adasum."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from functools import partial
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

import torch

from horovod.common._reduce_ops import Average, Max, Min, Sum
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list
from horovod.torch._compiling import between_graphs, never_trace
from horovod.torch._gradient_presence import DifferentParametersError, GradientPresence
from horovod.torch._grouped import submit_grouped_allreduce
from horovod.torch._hooked_optimizer import HookedOptimizer, Submitted, checked_names
from horovod.torch._result import Result
from horovod.torch._submission import submit
from horovod.torch.compression import Compressor, prepare
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import size, sparse_allreduce_async

# Such a reduction can be repeated without effect, so optimizers that share a gradient share one reduction.
_IDEMPOTENT = frozenset((Average, Min, Max))


SCATTERED = ("scattered",)  # what a sharded optimizer does to a gradient: no other may use it meanwhile


class Reduction(Result):
    """The result of one reduction in place, or of a group. Reductions with equal ``what`` share it; None: none may."""

    __slots__ = ("what",)

    def __init__(self, handle: int, what: Optional[tuple]) -> None:
        super().__init__(handle)
        self.what = what


# By the address of the gradient, which is unique: a reduction keeps its memory until its result is fetched.
under_way: weakref.WeakValueDictionary[int, Reduction] = weakref.WeakValueDictionary()

# The last count of gradients of each name. A copy of an optimizer has the names of the original, whose last count may
# still be under way.
_counts: weakref.WeakValueDictionary[str, GradientPresence] = weakref.WeakValueDictionary()


def in_turn(tensor: torch.Tensor, what: Optional[tuple]) -> Optional[Reduction]:
    """The reduction under way on the same memory, from another optimizer or parameter, if it equals ``what``.

    If it does not, this waits for its end: all ranks have begun it before this one, because hooks run in the order of
    their optimizers.
    """
    earlier = under_way.get(tensor.data_ptr())
    if earlier is None or not earlier.is_due():
        return None
    if earlier.what == SCATTERED or what == SCATTERED:
        raise ValueError("a gradient belongs to two optimizers, one of them sharded: each would divide it anew")
    if what is not None and earlier.what == what:
        return earlier
    with contextlib.suppress(Exception):  # its own optimizer raises the error
        earlier()
    return None


class GradientOptimizer(HookedOptimizer):
    """Reduces each gradient; ``step`` is the optimizer's own step on the results."""

    _count: type[GradientPresence] = GradientPresence

    def _distribute(
        self,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: int,
        gradient_predivide_factor: float,
        groups: Union[None, int, list[list[torch.Tensor]]],
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        names = checked_names(self.param_groups, named_parameters)
        self._prepare(names, compression, backward_passes_per_step, process_set)
        self._name({})
        self._reduce_by(op, gradient_predivide_factor, sparse_as_dense)
        if self._reduces:
            for p in self._trainable():
                self._watch(p)
            self._group(self._chunks(groups) if isinstance(groups, int) else groups or ())

    def _reduce_by(self, op: int, gradient_predivide_factor: float, sparse_as_dense: bool) -> None:
        self.op = op
        # For an average, dividing by f before the sum and multiplying by f after it helps narrow types.
        self._prescale = 1.0 / gradient_predivide_factor
        self._postscale = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self._synchronized = False
        self._should_synchronize = True
        self._reduces = bool(self.process_set.included()) and (size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")
        self._group_of: dict[torch.Tensor, list[torch.Tensor]] = {}
        # All parameters, sorted by the names of their reductions, and their own names; made for so many parameters.
        self._in_order: dict[torch.Tensor, str] = {}
        self._in_order_of = (0, 0)
        self._presence: Optional[GradientPresence] = None  # in the step that is being synchronised
        self._presence_before: Optional[GradientPresence] = None  # of the step before: see _counts

    def _group(self, groups: Iterable[Iterable[torch.Tensor]]) -> None:
        for group in groups:
            members = [p for p in group if p.requires_grad]
            self._group_of.update((p, members) for p in members)

    def _settings(self) -> dict[str, Any]:
        groups = {id(members): members for members in self._group_of.values()}
        return {
            **super()._settings(),
            "op": self.op,
            "gradient_predivide_factor": self._postscale,
            "sparse_as_dense": self.sparse_as_dense,
            "groups": list(groups.values()),
        }

    def _restore(self, settings: dict[str, Any], process_set: ProcessSet) -> None:
        super()._restore(settings, process_set)
        self._reduce_by(settings["op"], settings["gradient_predivide_factor"], settings["sparse_as_dense"])
        if self._reduces:
            for p in settings["watched"]:
                self._watch(p)
            self._group(settings["groups"])

    def _chunks(self, count: int) -> list[Sequence[torch.Tensor]]:
        """Cut the trainable parameters into ``count`` groups, in the order that they have on the set's first rank."""
        parameters = {self._parameter_names[p]: p for p in self._trainable()}
        first, *_ = self.process_set.ranks or [0]
        names = broadcast_object(list(parameters), first, "DistributedOptimizer.groups", self.process_set)
        if set(names) != set(parameters):
            missing, further = sorted(set(names) - set(parameters)), sorted(set(parameters) - set(names))
            raise ValueError(
                "groups need the same named parameters on all ranks; in comparison with the first, this one lacks "
                f"{missing or 'none'} and has {further or 'none'} more"
            )
        return split_list([parameters[name] for name in names], min(count, max(1, len(names))))

    def _is_complete(self, p: torch.Tensor) -> bool:
        return self._delay[p] == 0 and all(self._delay[q] == 0 for q in self._group_of.get(p, ()))

    def _rest(self) -> tuple[list[torch.Tensor], Optional[Exception]]:
        """Leave out parameters that have no gradient on any rank."""
        failure: Optional[Exception] = None
        try:
            # An interrupted synchronize goes on with the counts that it has submitted.
            if self._presence is None and self._delay:
                self._sort()
                submitted = {p for p in self._submitted if self._is_submitted(p)}
                name = f"present_gradients.{self._first_name()}"
                before = _counts.get(name)
                if before is not None:
                    before.free(wait=True)
                self._presence = self._count(self._in_order, self._delay, submitted, name, self.process_set)
                _counts[name] = self._presence
            if self._presence is not None and not self._presence.is_complete_here:
                self._presence.wait()
        except Exception as e:
            failure = e
        rest, _ = super()._rest()
        return [p for p in rest if self._is_reduced(p)], failure

    def _sort(self) -> None:
        """Put the parameters in order: the watched ones, and those that are frozen here, perhaps only here."""
        sizes = len(self._delay), sum(len(group["params"]) for group in self.param_groups)
        if sizes != self._in_order_of:
            named = {p for group in self.param_groups for p in group["params"] if p in self._parameter_names}
            in_order = sorted(named.union(self._delay), key=self._travel_name)
            self._in_order, self._in_order_of = {p: self._parameter_names[p] for p in in_order}, sizes

    def _first_name(self) -> str:
        """The first name of all parameters, also frozen ones: the same on ranks that have frozen different ones.

        Such ranks then fail at once, because their counts say so, instead of waiting for one another.
        """
        self._travel_name(next(iter(self._in_order)))  # names the reductions of a copy
        return min(self._travel_names.values())

    def _is_reduced(self, p: torch.Tensor) -> bool:
        return self._presence is None or self._presence.is_reduced(p)

    def _no_gradient(self, p: torch.Tensor) -> torch.Tensor:
        """What this rank contributes for ``p``, for which only other ranks have a gradient."""
        dims = 0 if self._presence is None else self._presence.sparse_dims(p)
        zeros = torch.zeros_like(p, requires_grad=False)
        return zeros.to_sparse(dims) if dims else zeros

    def _submit(self, p: torch.Tensor) -> None:
        """Submit the gradient of ``p``, and of its group."""
        group = [q for q in self._group_of.get(p, [p]) if self._is_reduced(q)]
        dense_of, tensors, ctxs, wires, sparse_dims = [], [], [], [], []
        for q in group:
            gradient = self._no_gradient(q) if q.grad is None else q.grad.detach()
            if gradient.is_sparse and not self.sparse_as_dense:
                wait = sparse_allreduce_async(gradient, self._travel_name(q), self.op, self.process_set)
                self._submitted[q] = Submitted(wait, stays_sparse=True)
                continue
            sparse_dims.append(gradient.sparse_dim() if gradient.is_sparse else 0)
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            compressed, ctx, wire = prepare(self._compression, dense.contiguous(), self.op)
            dense_of.append(q)
            tensors.append(compressed)
            ctxs.append(ctx)
            wires.append(wire)
        if not tensors:
            return
        reduction = (self.op, self._prescale, self._postscale)
        name = self._travel_name(group[0])
        waits: list[Callable[[], torch.Tensor]]
        if p not in self._group_of:
            waits = [self._reduced(tensors[0], name, wires[0])]
        else:
            names = [self._parameter_names[q] for q in dense_of]
            for tensor in tensors:
                in_turn(tensor, None)
            handle = submit_grouped_allreduce(tensors, True, name, *reduction, self.process_set, False, wires, names)
            results = Reduction(handle, None)
            under_way.update((tensor.data_ptr(), results) for tensor in tensors)
            waits = [partial(_of_group, results, i) for i in range(len(tensors))]
        for q, wait, ctx, dims in zip(dense_of, waits, ctxs, sparse_dims):
            self._submitted[q] = Submitted(wait, ctx, dims)

    def _reduced(self, tensor: torch.Tensor, name: str, wire: int) -> Result:
        """Reduce ``tensor`` in place. If another optimizer or parameter already does so, share its result."""
        reduction = (self.op, self._prescale, self._postscale)
        what = None
        if self.op in _IDEMPOTENT and tensor.numel() > 0:
            what = (self.process_set.process_set_id, wire, tensor.dtype, tensor.shape, tensor.stride(), *reduction)
        result = in_turn(tensor, what)
        if result is None:
            handle = submit("allreduce", tensor, tensor, name, self.process_set, False, *reduction, wire=wire)
            result = under_way[tensor.data_ptr()] = Reduction(handle, what)
        return result

    def _finish(self, p: torch.Tensor, submitted: Submitted) -> None:
        assert submitted.wait is not None
        reduced = submitted.wait()
        if p.grad is None and self._presence is not None and not self._presence.is_held(p):
            return  # no rank has a gradient any more: the step leaves the parameter alone
        if submitted.stays_sparse:
            p.grad = reduced
            return
        reduced = self._compression.decompress(reduced, submitted.ctx)
        if submitted.sparse_dims:
            p.grad = reduced.to_sparse(submitted.sparse_dims)
        elif p.grad is None:
            p.grad = reduced
        elif reduced.data_ptr() != p.grad.data_ptr():
            with torch.no_grad():
                p.grad.copy_(reduced)

    @between_graphs
    def synchronize(self) -> None:
        """Replace every gradient by the reduced one. Blocks.

        Gradients that backward has not completed are submitted as they are. A gradient that only other ranks have
        counts as zeros here; one that no rank has stays None. Raises HorovodInternalError if a reduction failed, after
        all have ended; or at once if only some ranks train a parameter.
        """
        if not self._reduces:
            self._synchronized = True
            return
        failure = self._submit_the_rest()
        # Ranks with different parameters would wait for one another.
        waits = () if isinstance(failure, DifferentParametersError) else self._submitted.items()
        for p, submitted in waits:
            try:
                if submitted.wait is not None:
                    self._finish(p, submitted)
            except Exception as e:
                failure = failure or e
        try:
            if self._presence is not None:
                self._presence.free(wait=False)
        except DifferentParametersError as e:
            failure = e  # it says why the others have failed
        except Exception as e:
            failure = failure or e
        self._reset()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # its stack has this frame: together they would keep the optimizer, and its hooks, alive
        self._synchronized = True

    def _reset(self) -> None:
        super()._reset()
        if self._presence is not None:
            self._presence_before, self._presence = self._presence, None

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside this context :meth:`step` uses the gradients as they are. Call :meth:`synchronize` before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @between_graphs
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Synchronise the gradients, unless inside :meth:`skip_synchronize`, then do the optimizer's own step.

        With a closure, its gradients are synchronised each time it is called; for LBFGS, which decides by the loss, the
        loss is reduced, too. With GOROVOD_CONSISTENCY, raises
        ConsistencyError if the ranks' parameters differ then.
        """
        result = self._synchronized_step(closure)
        self._stepped()
        return result

    # This mark keeps PyTorch from wrapping step with the optimizer's hooks: the inner optimizer's step runs them.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronized_step(self, closure: Optional[Callable[[], Any]]) -> Any:
        synchronized, self._synchronized = self._synchronized, False
        if not self._should_synchronize:
            return super().step(closure) if closure is not None else super().step()
        if synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
                "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
                "if you use optimizer.synchronize() in your code.",
                stacklevel=3,
            )
        if closure is None:
            self.synchronize()
            self._synchronized = False
            return super().step()
        if self._submitted:
            self.synchronize()

        def synchronized_closure() -> Any:
            loss = closure()
            self.synchronize()
            self._synchronized = False
            return self._reduced_loss(loss) if isinstance(self, torch.optim.LBFGS) else loss

        return super().step(synchronized_closure)

    def _reduced_loss(self, loss: Any) -> torch.Tensor:
        """The loss that belongs to the reduced gradients.

        LBFGS decides by it how far to go and when to stop. By its own loss each rank would decide in another way, and
        call the closure another number of times.
        """
        if not self._reduces:
            return loss
        if isinstance(loss, torch.Tensor):
            own = loss.detach().clone()
        else:
            own = torch.tensor(loss, dtype=torch.float64, device="cpu")
        op = self.op if self.op in (Average, Sum) else Average
        handle = submit("allreduce", own, own, f"loss.{self._first_name()}", self.process_set, False, op)
        return Result(handle)()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As in the optimizer's own class. Waits for reductions under way, and drops their results."""
        super().load_state_dict(*args, **kwargs)
        self._synchronized = False
        self._should_synchronize = True


def _of_group(results: Result, i: int) -> torch.Tensor:
    return results()[i]


never_trace(__name__)
