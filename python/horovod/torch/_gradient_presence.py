"""Which parameters have a gradient on some rank: a step leaves the others alone, as one process does."""

from __future__ import annotations

from typing import Collection, Optional, Sequence

import torch

from horovod.common._reduce_ops import Sum
from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import never_trace
from horovod.torch._result import Result
from horovod.torch._submission import submit


class GradientPresence:
    """One small allreduce per step: for each parameter, how many ranks have a gradient.

    Without it a rank that lacks a gradient could not tell zeros that others have computed, which move a parameter by
    momentum and weight decay, from no gradient at all. It travels beside the gradients that backward has submitted, and
    only a rank that lacks one waits for it: ranks may make the steps of several optimizers in different orders.

    Args:
        parameters: those that the ranks reduce, in an order that is the same on all of them.
        submitted: those whose reduction this rank has submitted.
        name, process_set: of the allreduce.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        submitted: Collection[torch.Tensor],
        name: str,
        process_set: ProcessSet,
    ) -> None:
        gradients = [p.grad for p in parameters]
        held = [int(gradient is not None) for gradient in gradients]
        # Every rank has to receive a gradient under way, even if the program has set it to None meanwhile.
        reduced = [int(present or p in submitted) for p, present in zip(parameters, held)]
        sparse = [gradient.sparse_dim() if gradient is not None and gradient.is_sparse else 0 for gradient in gradients]
        counts = torch.tensor([reduced, held, sparse], dtype=torch.int32, device="cpu")
        self._result = Result(submit("allreduce", counts, counts, name, process_set, False, Sum))
        self._parameters = parameters
        self.is_complete_here = all(held)
        self._counts: Optional[dict[torch.Tensor, tuple[int, int, int]]] = None

    def wait(self) -> None:
        """Wait for the other ranks' counts. Until then every parameter counts as one with a dense gradient."""
        counts = self._result()
        if not self.is_complete_here:  # otherwise they say nothing that this rank needs
            self._counts = dict(zip(self._parameters, zip(*counts.tolist())))

    def free(self, wait: bool) -> None:
        """Let go of the operation, which has ended unless ``wait``, so that its name can be used again."""
        if self._result.is_due() and (wait or self._result.has_ended()):
            self._result()

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
