"""The code that the variants of DistributedOptimizer share: they submit work for each parameter during backward."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, Optional

import torch

from horovod.common import _arguments, _lib
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import between_graphs, never_trace
from horovod.torch._consistency import check_consistency
from horovod.torch._naming import distinct_names
from horovod.torch._staging import check_no_capture
from horovod.torch._submission import generation, process_set_id


class Submitted(NamedTuple):
    """The reduction that belongs to one parameter."""

    wait: Optional[Callable[[], torch.Tensor]]  # waits for the result; None: not submitted yet
    ctx: Any = None  # the compressor's context
    sparse_dims: int = 0  # of the gradient before it was made dense; 0 if it was dense
    stays_sparse: bool = False


_NOT_YET = Submitted(None)


if TYPE_CHECKING:
    from torch.optim import Optimizer as _Base  # in truth the class of the wrapped optimizer
else:
    _Base = object


class _Existing:
    """All optimizers that exist, also those that only Python's garbage collection will free.

    The hooks of those would reduce until then. That is at another time on each rank, and meanwhile the ranks would wait
    for one another.
    """

    def __init__(self) -> None:
        self._optimizers: weakref.WeakSet[HookedOptimizer] = weakref.WeakSet()
        self._suspects = False  # some may be garbage since there are others for their parameters

    def add(self, optimizer: HookedOptimizer, parameters: Iterable[torch.Tensor]) -> None:
        self._suspects |= any(p in other._delay for other in list(self._optimizers) for p in parameters)
        self._optimizers.add(optimizer)

    def collect(self) -> None:
        """Free those that nobody holds any more, if there may be such. Called before each hook."""
        if self._suspects:
            self._suspects = False
            gc.collect()


_existing = _Existing()


class HookedOptimizer(_Base):
    """Comes before the optimizer's own class in the method resolution order.

    Counts the backward passes of each watched parameter, and calls :meth:`_submit` when its gradient is complete. A
    derived class defines that, ``step``, and ``synchronize``; it calls :meth:`_prepare` first.
    """

    _reduces: bool  # whether this rank takes part in reductions, so that parameters are watched

    _compression: Any

    _given: Optional[weakref.ref[Any]] = None  # the optimizer that was wrapped; a copy may have none

    def _prepare(
        self,
        names: dict[torch.Tensor, str],
        compression: Any,
        backward_passes_per_step: int,
        process_set: ProcessSet,
    ) -> None:
        self.process_set = process_set
        self._compression = compression
        self._parameter_names = names  # Horovod's name for it, which programs read
        self._travel_names: dict[torch.Tensor, str] = {}  # the names of the reductions; empty until the first is needed
        self.backward_passes_per_step = backward_passes_per_step
        self._submitted: dict[torch.Tensor, Submitted] = {}
        self._generation = generation()
        self._delay: dict[torch.Tensor, int] = {}  # backward passes until a parameter is submitted
        self._hooks: list[Any] = []
        self._steps = 0
        _existing.add(self, list(names))

    def _name(self, names: dict[torch.Tensor, str]) -> None:
        """Name the reductions of further parameters; at the first call, also of those known before."""
        self._parameter_names.update(names)
        unnamed = names if self._travel_names else self._parameter_names
        distinct = distinct_names(list(unnamed.values()), process_set_id(self.process_set))
        self._travel_names.update(zip(unnamed, distinct))

    def _travel_name(self, p: torch.Tensor) -> str:
        if not self._travel_names:
            self._name({})
        return self._travel_names[p]

    def _submit(self, p: torch.Tensor) -> None:
        """Submit the reduction of ``p``, and of tensors that travel with it, and note it in ``_submitted``."""
        raise NotImplementedError

    def _allreduce_grad_async(self, p: torch.Tensor) -> None:
        """Horovod's name for :meth:`_submit`, by which programs recognise a DistributedOptimizer."""
        self._submit(p)

    def _is_complete(self, p: torch.Tensor) -> bool:
        """Whether backward has finished everything that is submitted with ``p``."""
        return self._delay[p] == 0

    def _trainable(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _watch(self, p: torch.Tensor) -> None:
        """Submit ``p`` whenever its gradient is complete."""
        if not p.requires_grad:
            return
        self._delay[p] = self.backward_passes_per_step
        # If the parameter outlives the optimizer, the hook does nothing.
        this, parameter = weakref.ref(self), weakref.ref(p)

        def hook(*_: Any) -> None:
            _existing.collect()
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

    def _watch_the_rest(self) -> None:
        """Watch parameters that are trained only now: formerly frozen ones, or ones that were put into a group's list.

        All ranks must have made the change before the same step.
        """
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if p.requires_grad and p not in self._delay:
                    if p not in self._parameter_names:
                        self._name({p: f"allreduce.noname.{i}.{j}"})
                    self._watch(p)

    @between_graphs
    def _gradient_is_ready(self, p: torch.Tensor) -> None:
        self._drop_lost()
        if self._delay[p] <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                f'backward_passes_per_step to accumulate gradients locally. (parameter "{self._parameter_names[p]}")'
            )
        assert not p.grad.requires_grad, (
            "DistributedOptimizer does not support backward(create_graph=True). "
            f'(parameter "{self._parameter_names[p]}")'
        )
        self._delay[p] -= 1
        self._submitted[p] = _NOT_YET
        if self._is_complete(p):
            self._submit(p)

    def _submit_the_rest(self) -> Optional[Exception]:
        """Submit each parameter that backward has not. Returns the first failure, after submitting all."""
        if self._submitted and self._generation != generation():
            return HorovodInternalError("Horovod was shut down while gradients were being reduced.")
        if any(p.is_cuda for p in self._submitted):
            check_no_capture()
        self._drop_lost()
        self._watch_the_rest()
        rest, failure = self._rest()
        for p in rest:
            if not self._is_submitted(p):  # with its group, meanwhile
                try:
                    self._submit(p)
                except Exception as e:
                    failure = failure or e
        return failure

    def _is_submitted(self, p: torch.Tensor) -> bool:
        submitted = self._submitted.get(p)
        return submitted is not None and submitted.wait is not None

    def _rest(self) -> tuple[list[torch.Tensor], Optional[Exception]]:
        """The parameters that are still to be submitted, and the failure to find out, if any."""
        return [p for p in self._delay if not self._is_submitted(p)], None

    def _stepped(self) -> None:
        """Count a step, and compare the parameters with those of other ranks if it is time (GOROVOD_CONSISTENCY)."""
        self._steps += 1
        self._mark_given()
        every = _lib.load().gorovod_consistency_steps()
        if every > 0 and self._steps % every == 0 and self._reduces:
            parameters = [p for group in self.param_groups for p in group["params"]]
            check_consistency([(self._parameter_names[p], p) for p in parameters], process_set=self.process_set)

    def _mark_given(self) -> None:
        """Tell schedulers that were made for the wrapped optimizer before that a step has been made.

        At its first step such a scheduler otherwise warns that no optimizer has stepped yet.
        """
        given = None if self._given is None else self._given()
        if given is not None:
            given._opt_called = True  # newer PyTorch
            given._step_count = getattr(given, "_step_count", 0) + 1  # older PyTorch

    def _drop_lost(self) -> None:
        """Forget reductions that were under way or due when Horovod was shut down."""
        if self._generation != generation():
            self._reset()

    def _reset(self) -> None:
        self._submitted.clear()
        self._generation = generation()
        for p in self._delay:
            self._delay[p] = self.backward_passes_per_step

    @between_graphs
    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As in the optimizer's own class. Raises AssertionError while gradients are being reduced."""
        self._drop_lost()
        if self._submitted:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        super().zero_grad(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce after this many backward passes from now on; gradients add up in between."""
        _arguments.passes(passes)
        self.backward_passes_per_step = passes
        for p in self._delay:
            self._delay[p] = passes

    @between_graphs
    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As in the optimizer's own class. Waits for reductions under way, and drops their results.

        The groups and the state stay the same objects. So a learning rate scheduler, or whatever else was made for the
        wrapped optimizer, goes on to drive this one.
        """
        for submitted in self._submitted.values():
            if submitted.wait is not None:
                with contextlib.suppress(Exception):
                    submitted.wait()
        self._reset()
        this: Any = self
        if not {"param_groups", "state"} <= vars(self).keys():
            # A wrapper such as apex's LARC: these are properties, and belong to the optimizer inside, which loads them.
            super().load_state_dict(*args, **kwargs)
            return
        groups, state = this.param_groups, this.state
        kept = list(groups)
        super().load_state_dict(*args, **kwargs)
        for group, loaded in zip(kept, this.param_groups):
            if group is not loaded:
                group.clear()
                group.update(loaded)
        groups[:] = kept
        loaded_state = dict(this.state)
        state.clear()
        state.update(loaded_state)
        this.param_groups, this.state = groups, state

    def __copy__(self) -> HookedOptimizer:
        """A second object for the same parameters, groups, state and reductions."""
        same = type(self).__new__(type(self))
        same.__dict__.update((key, value) for key, value in self.__dict__.items() if key != "step")
        return same

    def _settings(self) -> dict[str, Any]:
        """How this optimizer is distributed, for :meth:`_restore`; picklable."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        return {
            "names": {p: self._parameter_names[p] for p in parameters if p in self._parameter_names},
            "compression": self._compression,
            "backward_passes_per_step": self.backward_passes_per_step,
            "watched": list(self._delay),
            "ranks": None if self.process_set.process_set_id == 0 else self.process_set.ranks,
        }

    def _restore(self, settings: dict[str, Any], process_set: ProcessSet) -> None:
        """Distribute a copy that has no parameter groups yet.

        It calls no collective, and names nothing before its first backward pass, because perhaps only rank 0 makes
        copies, for a checkpoint.
        """
        names, passes = settings["names"], settings["backward_passes_per_step"]
        self._prepare(names, settings["compression"], passes, process_set)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As in the optimizer's own class. Call it on all ranks, in one order; the parameters get default names."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = self.param_groups[number]["params"]
        self._name({p: f"allreduce.noname.{number}.{i}" for i, p in enumerate(added)})
        for p in added:
            if self._reduces:
                self._watch(p)


def checked_names(
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
    if not all(isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) for item in named):
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
    unnamed = [
        f"{id(p)} (parameter {j} of group {i}, of shape {list(p.shape)})"
        for i, group in enumerate(param_groups)
        for j, p in enumerate(group["params"])
        if p not in names
    ]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. Python object ids: "
            + ", ".join(unnamed)
        )
    return names


never_trace(__name__)
