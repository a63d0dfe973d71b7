"""Which parameters have a gradient on some rank: a step leaves the others alone, as one process does."""

from __future__ import annotations

from typing import Collection, Mapping, Optional

import torch

from horovod.common._reduce_ops import Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import never_trace
from horovod.torch._result import Result
from horovod.torch._submission import submit

_MOST = 8  # names in an error


class DifferentParametersError(HorovodInternalError):
    """Only some ranks train a parameter."""


class GradientPresence:
    """One small allreduce per step: for each parameter, how many ranks train it, and how many have a gradient.

    Without it a rank that lacks a gradient could not tell zeros that others have computed, which move a parameter by
    momentum and weight decay, from no gradient at all. It travels beside the gradients that backward has submitted, and
    only a rank that lacks one waits for it: ranks may make the steps of several optimizers in different orders.

    Args:
        parameters: those of the optimizer, also frozen ones, and their names, in the same order on all ranks.
        trained: those that this rank reduces.
        submitted: those whose reduction this rank has submitted.
        name, process_set: of the allreduce.
    """

    def __init__(
        self,
        parameters: Mapping[torch.Tensor, str],
        trained: Collection[torch.Tensor],
        submitted: Collection[torch.Tensor],
        name: str,
        process_set: ProcessSet,
    ) -> None:
        gradients = [p.grad if p in trained else None for p in parameters]
        held = [int(gradient is not None) for gradient in gradients]
        # Every rank has to receive a gradient under way, even if the program has set it to None meanwhile.
        reduced = [int(present or p in submitted) for p, present in zip(parameters, held)]
        sparse = [gradient.sparse_dim() if gradient is not None and gradient.is_sparse else 0 for gradient in gradients]
        mine = [int(p in trained) for p in parameters]
        counts = torch.tensor(self._rows([reduced, held, sparse, mine]), dtype=torch.int32, device="cpu")
        self._result = Result(submit("allreduce", counts, counts, name, process_set, False, Sum))
        self._parameters = parameters
        self._mine = mine
        self.is_complete_here = sum(held) == sum(mine)
        self._counts: Optional[dict[torch.Tensor, tuple[int, int, int]]] = None

    def _rows(self, rows: list[list[int]]) -> list[list[int]]:
        """What the ranks add up: these rows, and whatever a derived class needs."""
        return rows

    def wait(self) -> None:
        """Wait for the other ranks' counts. Until then every parameter counts as one with a dense gradient."""
        reduced, held, sparse, trained = self._result().tolist()[:4]
        self._compare(trained)
        if not self.is_complete_here:  # otherwise they say nothing that this rank needs
            self._counts = dict(zip(self._parameters, zip(reduced, held, sparse)))

    def _compare(self, trained: list[int]) -> None:
        """Raise unless all ranks train the same parameters. Ranks that have joined say nothing."""
        ranks = max(trained)
        differ = [i for i, (n, mine) in enumerate(zip(trained, self._mine)) if n != (ranks if mine else 0)]
        if not differ:
            return
        names, said = list(self._parameters.values()), []
        for i in differ[:_MOST]:
            also = "also" if self._mine[i] else "not"
            said.append(f"{names[i]} ({trained[i]} of the ranks, {also} this one)")
        more = f" and {len(differ) - _MOST} more" if len(differ) > _MOST else ""
        raise DifferentParametersError(
            f"only some ranks train these parameters: {', '.join(said)}{more}. Freeze and unfreeze (requires_grad) the "
            "same parameters on all ranks, before the same step."
        )

    def free(self, wait: bool) -> None:
        """Let go of the operation, which has ended unless ``wait``, so that its name can be used again.

        Raises DifferentParametersError if it has found out that the ranks train different parameters.
        """
        if self._result.is_due() and (wait or self._result.has_ended()):
            self._compare(self._result()[3].tolist())

    def is_reduced(self, p: torch.Tensor) -> bool:
        """Whether some rank has submitted a gradient, or will."""
        return self._counts is None or self._counts[p][0] > 0

    def is_held(self, p: torch.Tensor) -> bool:
        """Whether some rank had a gradient when it synchronised."""
        return self._counts is None or self._counts[p][1] > 0

    def sparse_dims(self, p: torch.Tensor) -> int:
        """The sparse dimensions of the other ranks' gradients; 0 if they are dense."""
        if self._counts is None or not self.is_held(p):
            return 0
        _, ranks, dims = self._counts[p]
        return dims // ranks


never_trace(__name__)
