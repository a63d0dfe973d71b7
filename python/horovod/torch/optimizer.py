"""DistributedOptimizer: any PyTorch optimizer, on gradients that are averaged over the ranks."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections import Counter
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import Compression, Compressor
from horovod.torch.mpi_ops import Adasum, Average, allreduce_async_, rocm_built, size, synchronize


class _Submitted(NamedTuple):
    """The allreduce of one parameter's gradient."""

    handle: Optional[int]  # None: some backward passes are yet to come
    ctx: Any  # of the compressor
    sparse_dims: int  # of the gradient before it was made dense; 0 if it was dense


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
        if self._reduces:
            for group in self.param_groups:
                for p in group["params"]:
                    self._watch(p)

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
        self._submitted[p] = self._submit(p) if self._delay[p] == 0 else _Submitted(None, None, 0)

    def _submit(self, p: torch.Tensor) -> _Submitted:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        gradient, sparse_dims = p.grad.detach(), 0
        if gradient.is_sparse:
            if not self.sparse_as_dense:
                raise NotImplementedError(
                    f"the gradient of {self._names[p]} is sparse, which this version supports only with "
                    "DistributedOptimizer(sparse_as_dense=True)"
                )
            sparse_dims = gradient.sparse_dim()
            gradient = gradient.to_dense()
        compressed, ctx = self._compression.compress(gradient.contiguous())
        handle = allreduce_async_(
            compressed,
            name=self._names[p],
            op=self.op,
            prescale_factor=self._prescale,
            postscale_factor=self._postscale,
            process_set=self.process_set,
        )
        return _Submitted(handle, ctx, sparse_dims)

    def _finish(self, p: torch.Tensor, submitted: _Submitted) -> None:
        reduced = self._compression.decompress(synchronize(submitted.handle), submitted.ctx)
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
            if submitted is None or submitted.handle is None:
                self._submitted[p] = self._submit(p)
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
            if submitted.handle is not None:
                with contextlib.suppress(RuntimeError, ValueError):
                    synchronize(submitted.handle)
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


def _check_groups(groups: Any) -> None:
    if not (isinstance(groups, list) or (isinstance(groups, int) and groups > 0)):
        raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
    raise NotImplementedError(
        "DistributedOptimizer(groups=…) is not supported by this version; without it, small gradients are fused anyway."
    )


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
    sparse_as_dense: reduce sparse gradients in dense form; without it they raise NotImplementedError.

    Raises ValueError for bad arguments, NotImplementedError for Adasum and for groups. Ranks must construct it after
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
        _check_groups(groups)
    if op == Adasum:
        raise NotImplementedError("op=Adasum is not supported by this version; use Average or Sum.")

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
        sparse_as_dense,
        process_set,
    )
    return distributed
