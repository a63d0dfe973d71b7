"""The optimizer whose steps are combined: DistributedOptimizer with op=Adasum."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._compiling import between_graphs, never_trace
from horovod.torch._hooked_optimizer import HookedOptimizer, Submitted, checked_names
from horovod.torch._result import Result
from horovod.torch.compression import Compressor
from horovod.torch.mpi_ops import Adasum, allreduce_async_


class DeltaOptimizer(HookedOptimizer):
    """Makes the optimizer's own step with this rank's gradients, for each parameter separately, and undoes it.

    The change by the step, the delta, is combined with the other ranks' deltas by Adasum (arXiv:2006.02924); ``step``
    adds the result. The optimizer's state, such as momentum, follows this rank's gradients.
    """

    _reduces = True

    def _distribute(
        self,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
        compression: type[Compressor],
        backward_passes_per_step: int,
    ) -> None:
        names = checked_names(self.param_groups, named_parameters)
        self._prepare(names, compression, backward_passes_per_step, global_process_set)
        self._name({})
        for p in self._trainable():
            self._watch(p)

    def _settings(self) -> dict[str, Any]:
        # Also what the variant needs that takes its place on one rank.
        of_one_rank = {"gradient_predivide_factor": 1.0, "sparse_as_dense": False, "groups": []}
        return {**super()._settings(), "op": Adasum, **of_one_rank}

    def _restore(self, settings: dict[str, Any], process_set: ProcessSet) -> None:
        super()._restore(settings, process_set)
        for p in settings["watched"]:
            self._watch(p)

    def _submit(self, p: torch.Tensor) -> None:
        delta, ctx = self._compression.compress(self._delta(p))
        handle = allreduce_async_(delta, name=self._travel_name(p), op=Adasum)
        self._submitted[p] = Submitted(Result(handle), ctx)

    def _delta(self, p: torch.Tensor) -> torch.Tensor:
        """The change that the optimizer's own step makes to ``p``, which stays as it is."""
        start = p.detach().clone(memory_format=torch.contiguous_format)
        with self._only(p):
            super().step()
        with torch.no_grad():
            delta = p.detach().sub(start).contiguous()
            p.copy_(start)
        return delta

    @contextlib.contextmanager
    def _only(self, p: torch.Tensor) -> Iterator[None]:
        """Inside this context ``p`` is the optimizer's only parameter."""
        parameters = [group["params"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                group["params"] = [p] if any(q is p for q in group["params"]) else []
            yield
        finally:
            for group, params in zip(self.param_groups, parameters):
                group["params"] = params

    @between_graphs
    def synchronize(self) -> None:
        """Do nothing: there are no reduced gradients, only reduced steps, which :meth:`step` waits for."""

    def skip_synchronize(self) -> None:
        """Raise AssertionError: there are no reduced gradients that could be used."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    @between_graphs
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Add the combined deltas to the parameters. Blocks. Calls ``closure`` first, and returns its result.

        Deltas that backward has not submitted are computed now, from the present gradients. Raises HorovodInternalError
        if a reduction failed, after all have ended; then the parameters are unchanged.
        """
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        failure = self._submit_the_rest()
        deltas = []
        for p, submitted in self._submitted.items():
            try:
                if submitted.wait is not None:
                    deltas.append((p, self._compression.decompress(submitted.wait(), submitted.ctx)))
            except Exception as e:
                failure = failure or e
        self._reset()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # its stack has this frame: together they would keep the optimizer, and its hooks, alive
        with torch.no_grad():
            for p, delta in deltas:
                p.add_(delta)
        self._stepped()
        return result

    # This mark keeps PyTorch from wrapping step with the optimizer's hooks: the inner optimizer's step runs them.
    step.hooked = True  # type: ignore[attr-defined]


never_trace(__name__)
