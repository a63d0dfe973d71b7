"""DistributedOptimizer: any PyTorch optimizer, on gradients that are averaged over the ranks."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections import Counter
from functools import partial
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Union

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.torch.compression import Compression, Compressor
from horovod.torch.functions import broadcast_object
from horovod.torch.mpi_ops import (
    Adasum,
    Average,
    allreduce_async_,
    grouped_allreduce_async_,
    rocm_built,
    size,
    sparse_allreduce_async,
    synchronize,
)


class _Submitted(NamedTuple):
    """The reduction of one parameter's gradient."""

    wait: Optional[Callable[[], torch.Tensor]]  # for the result; None: not submitted yet
    ctx: Any = None  # of the compressor
    sparse_dims: int = 0  # of the gradient before it was made dense; 0 if it was dense
    stays_sparse: bool = False


_NOT_YET = _Submitted(None)


class _GroupResult:
    """Waits once for the reduction of a group, for all its parameters."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._reduced: Optional[list[torch.Tensor]] = None
        self._failure: Optional[Exception] = None

    def __getitem__(self, i: int) -> torch.Tensor:
        if self._failure is None and self._reduced is None:
            try:
                self._reduced = synchronize(self._handle)
            except (RuntimeError, ValueError) as e:
                self._failure = e
        if self._failure is not None:
            raise self._failure
        return self._reduced[i]


class _Distributed:
    """What DistributedOptimizer puts in front of the optimizer's own class."""

    _names: dict[torch.Tensor, str]

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
        self._names = _parameter_names(self.param_groups, named_parameters)
        self._compression = compression
        self.backward_passes_per_step = backward_passes_per_step
        self.op = op
        # For an average the sum is divided by f before and multiplied by f after, which helps narrow types.
        self._prescale = 1.0 / gradient_predivide_factor
        self._postscale = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._submitted: dict[torch.Tensor, _Submitted] = {}
        self._delay: dict[torch.Tensor, int] = {}  # backward passes until a gradient is submitted
        self._hooks: list[Any] = []
        self._synchronized = False
        self._should_synchronize = True
        self._reduces = bool(process_set.included()) and (size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")
        self._group_of: dict[torch.Tensor, list[torch.Tensor]] = {}
        if self._reduces:
            for p in self._trainable():
                self._watch(p)
            for group in self._chunks(groups) if isinstance(groups, int) else groups or ():
                members = [p for p in group if p.requires_grad]
                self._group_of.update((p, members) for p in members)

    def _trainable(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _chunks(self, count: int) -> list[list[torch.Tensor]]:
        """Cut the trainable parameters into ``count`` groups, by the order that they have on the set's first rank."""
        parameters = {self._names[p]: p for p in self._trainable()}
        names = broadcast_object(
            list(parameters), self.process_set.ranks[0], "DistributedOptimizer.groups", self.process_set
        )
        if set(names) != set(parameters):
            raise ValueError("groups need the same named parameters on all ranks")
        return split_list([parameters[name] for name in names], min(count, max(1, len(names))))

    def _watch(self, p: torch.Tensor) -> None:
        """Submit the gradient of ``p`` whenever it is complete."""
        if not p.requires_grad:
            return
        self._delay[p] = self.backward_passes_per_step
        # The parameter outlives the optimizer at times; then the hook does nothing.
        this, parameter = weakref.ref(self), weakref.ref(p)

        def hook(*_: Any) -> None:
            optimizer, p = this(), parameter()
            if optimizer is not None and p is not None:
                optimizer._gradient_is_ready(p)

        if hasattr(p, "register_post_accumulate_grad_hook"):  # PyTorch 2.1
            self._hooks.append(p.register_post_accumulate_grad_hook(hook))
        else:
            # The node of the graph that accumulates p.grad; it lives as long as somebody holds it.
            accumulator = p.expand_as(p).grad_fn.next_functions[0][0]
            accumulator.register_hook(hook)
            self._hooks.append(accumulator)

    def _gradient_is_ready(self, p: torch.Tensor) -> None:
        if self._delay[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally."
            )
        assert not p.grad.requires_grad, "DistributedOptimizer does not support backward(create_graph=True)."
        self._delay[p] -= 1
        self._submitted[p] = _NOT_YET
        if self._delay[p] == 0 and all(self._delay[q] == 0 for q in self._group_of.get(p, ())):
            self._submit(p)

    def _submit(self, p: torch.Tensor) -> None:
        """Submit the gradient of ``p``, and of its group."""
        group = self._group_of.get(p, [p])
        dense_of, tensors, ctxs, sparse_dims = [], [], [], []
        for q in group:
            if q.grad is None:
                q.grad = torch.zeros_like(q)
            gradient = q.grad.detach()
            if gradient.is_sparse and not self.sparse_as_dense:
                wait = sparse_allreduce_async(gradient, self._names[q], self.op, self.process_set)
                self._submitted[q] = _Submitted(wait, stays_sparse=True)
                continue
            sparse_dims.append(gradient.sparse_dim() if gradient.is_sparse else 0)
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            compressed, ctx = self._compression.compress(dense.contiguous())
            dense_of.append(q)
            tensors.append(compressed)
            ctxs.append(ctx)
        if not tensors:
            return
        arguments = {
            "op": self.op,
            "prescale_factor": self._prescale,
            "postscale_factor": self._postscale,
            "process_set": self.process_set,
        }
        if p not in self._group_of:
            waits = [partial(synchronize, allreduce_async_(tensors[0], name=self._names[p], **arguments))]
        else:
            handle = grouped_allreduce_async_(tensors, name=self._names[group[0]], **arguments)
            result = _GroupResult(handle)
            waits = [partial(result.__getitem__, i) for i in range(len(tensors))]
        for q, wait, ctx, dims in zip(dense_of, waits, ctxs, sparse_dims):
            self._submitted[q] = _Submitted(wait, ctx, dims)

    def _finish(self, p: torch.Tensor, submitted: _Submitted) -> None:
        reduced = submitted.wait()
        if submitted.stays_sparse:
            p.grad = reduced
            return
        reduced = self._compression.decompress(reduced, submitted.ctx)
        if submitted.sparse_dims:
            p.grad = reduced.to_sparse(submitted.sparse_dims)
        elif reduced.data_ptr() != p.grad.data_ptr():
            with torch.no_grad():
                p.grad.copy_(reduced)

    def _reset(self) -> None:
        self._submitted.clear()
        for p in self._delay:
            self._delay[p] = self.backward_passes_per_step

    def synchronize(self) -> None:
        """Make every gradient the reduced one. Blocks.

        Gradients that backward has not completed are submitted as they are, missing ones as zeros. Raises
        HorovodInternalError if a reduction failed, after all have ended.
        """
        if not self._reduces:
            self._synchronized = True
            return
        for p in self._delay:
            submitted = self._submitted.get(p)
            if submitted is None or submitted.wait is None:
                self._submit(p)
        failure: Optional[Exception] = None
        for p, submitted in self._submitted.items():
            try:
                self._finish(p, submitted)
            except (RuntimeError, ValueError) as e:
                failure = failure or e
        self._reset()
        if failure is not None:
            raise failure
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside this context :meth:`step` uses the gradients as they are: after a call of :meth:`synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Synchronise the gradients, unless inside :meth:`skip_synchronize`, then do the optimizer's own step.

        With a closure, the gradients that it computes are synchronised each time it is called.
        """
        synchronized, self._synchronized = self._synchronized, False
        if not self._should_synchronize:
            return super().step(closure) if closure is not None else super().step()
        if synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
                "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
                "if you use optimizer.synchronize() in your code.",
                stacklevel=2,
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
            return loss

        return super().step(synchronized_closure)

    # PyTorch wraps a class's step with its hooks unless it is marked so; the optimizer's own step runs them.
    step.hooked = True

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own. Raises AssertionError while gradients are being reduced."""
        if self._submitted:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce gradients after this many backward passes from now on; they add up in between."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = passes
        for p in self._delay:
            self._delay[p] = passes

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's own. Reductions that are under way are waited for, and their results dropped."""
        for submitted in self._submitted.values():
            if submitted.wait is not None:
                with contextlib.suppress(RuntimeError, ValueError):
                    submitted.wait()
        self._reset()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer's own. Call it on all ranks, in the same order; the parameters get default names."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        for i, p in enumerate(self.param_groups[number]["params"]):
            self._names[p] = f"allreduce.noname.{number}.{i}"
            if self._reduces:
                self._watch(p)


def _parameter_names(
    param_groups: list[dict[str, Any]], named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]
) -> dict[torch.Tensor, str]:
    """Check ``named_parameters``, and return each parameter's name."""
    if named_parameters is None:
        return {
            p: f"allreduce.noname.{i}.{j}"
            for i, group in enumerate(param_groups)
            for j, p in enumerate(group["params"])
        }
    named = list(named_parameters)
    if not all(isinstance(item, tuple) for item in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    duplicates = sorted(name for name, count in Counter(name for name, _ in named).items() if count > 1)
    if duplicates:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}"
        )
    names = {p: name for name, p in named}
    unnamed = [id(p) for group in param_groups for p in group["params"] if p not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. Python object ids: "
            + ", ".join(map(str, unnamed))
        )
    return names


def _check_groups(groups: Any, parameters: Iterable[torch.Tensor]) -> None:
    """Raise ValueError unless ``groups`` is a number above 0, or disjoint lists of parameters."""
    if not (isinstance(groups, list) or (isinstance(groups, int) and groups > 0)):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    if isinstance(groups, int):
        return
    known, seen = set(parameters), set()
    for group in groups:
        if not isinstance(group, (list, tuple)) or not all(isinstance(p, torch.Tensor) for p in group):
            raise ValueError("groups must consist of lists of torch.Tensor.")
        for p in group:
            if p not in known:
                raise ValueError("groups has a tensor that is not a parameter of the optimizer.")
            if p in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(p)


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Optional[Any] = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Return ``optimizer`` in a form whose ``step`` works on gradients reduced over the ranks of ``process_set``.

    The result is an instance of a class derived from that of ``optimizer``; it takes over its parameter groups and
    state, and replaces it. Each gradient is reduced while backward goes on, as soon as it is complete. It has the
    methods ``synchronize``, ``skip_synchronize`` (to clip gradients, call the first and put ``step`` into the second)
    and ``set_backward_passes_per_step`` besides those of ``optimizer``.

    named_parameters: ``model.named_parameters()``. Names match the gradients of different ranks; without them, the
        positions in the parameter groups do.
    compression: ``Compression.fp16`` halves the traffic.
    backward_passes_per_step: how many backward passes to add up before a reduction.
    op: Average, Sum, Min, Max or Product.
    gradient_predivide_factor: for Average, divide by this before the sum, and by the rest of size() after.
    groups: how many groups to cut the parameters into, or lists of parameters; a group is reduced in one call, when
        all its gradients are complete. ``num_groups`` is the deprecated form of the number.
    sparse_as_dense: reduce sparse gradients in dense form. Without it their indices and values are gathered.
    process_set: the ranks whose gradients are reduced. Elsewhere the result does what ``optimizer`` does.

    Raises ValueError for bad arguments, NotImplementedError for Adasum. Ranks must construct it after
    ``hvd.init()``, and should start from equal parameters: see ``broadcast_parameters``.
    """
    if isinstance(optimizer, _Distributed):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    if gradient_predivide_factor != 1.0:
        if rocm_built():
            raise ValueError("gradient_predivide_factor not supported yet with ROCm")
        if op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=2,
        )
        if groups is None:
            groups = num_groups
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if groups is not None:
        _check_groups(groups, (p for group in optimizer.param_groups for p in group["params"]))
    if op == Adasum:
        raise NotImplementedError(
            "DistributedOptimizer(op=Adasum) is not supported by this version; use Average or Sum, or hvd.allreduce."
        )

    base = optimizer.__class__
    cls = type(base.__name__, (_Distributed, base), {"__module__": base.__module__, "__doc__": base.__doc__})
    distributed = cls.__new__(cls)
    # No constructor: that of an arbitrary class may want arguments that only its caller knows. Without "step", which is
    # there if a learning rate scheduler has wrapped the optimizer's own.
    distributed.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key != "step")
    distributed._distribute(
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
    return distributed
