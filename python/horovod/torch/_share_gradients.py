"""What a sharded optimizer does with the reduced shares of gradients before its step: clipping, and loss scaling.

Each rank has other elements, so a norm and the question whether all are finite go to all ranks.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import Any, Iterable

import torch

from horovod.common import _patches
from horovod.common._reduce_ops import Max, Sum
from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import never_trace
from horovod.torch.mpi_ops import allreduce_


def _values(gradient: torch.Tensor) -> torch.Tensor:
    """The elements of a share's gradient that are stored; a sparse one must be coalesced."""
    return gradient._values() if gradient.is_sparse else gradient


def total_norm(gradients: Iterable[torch.Tensor], norm_type: float, name: str, process_set: ProcessSet) -> torch.Tensor:
    """The norm of all ranks' shares together, in float64, the same on all ranks. Blocks."""
    norms = [torch.linalg.vector_norm(_values(g), norm_type, dtype=torch.float64) for g in gradients if g.numel() > 0]
    device = norms[0].device if norms else torch.device("cpu")
    each = torch.stack([norm.to(device) for norm in norms] or [torch.zeros((), dtype=torch.float64, device=device)])
    if math.isinf(norm_type):
        return allreduce_(each.max(), name=name, op=Max, process_set=process_set)
    total = allreduce_(each.pow(norm_type).sum(), name=name, op=Sum, process_set=process_set)
    return total.pow(1.0 / norm_type)


def scale(gradients: Iterable[torch.Tensor], factor: torch.Tensor) -> None:
    """Multiply the gradients by a number, in place."""
    for gradient in gradients:
        _values(gradient).mul_(factor.to(gradient.device))


def unscale(
    gradients: Iterable[torch.Tensor], inv_scale: torch.Tensor, name: str, process_set: ProcessSet
) -> torch.Tensor:
    """Multiply the gradients by a number, and return 1.0 if one on any rank was not finite, otherwise 0.0. Blocks."""
    found = torch.zeros(1, device="cpu")
    alike = defaultdict(list)
    for gradient in gradients:
        alike[gradient.device, gradient.dtype].append(_values(gradient))
    for (device, _), values in alike.items():
        here = torch.zeros(1, device=device)
        inverse = inv_scale.to(device)
        torch._amp_foreach_non_finite_check_and_unscale_(values, here, inverse)
        found = torch.maximum(found.to(device), here)
    return allreduce_(found, name=name, op=Max, process_set=process_set)


def patch_scalers() -> None:
    """Have each GradScaler leave the gradients of sharded optimizers to these."""
    scalers: Any = torch.amp if hasattr(torch.amp, "GradScaler") else torch.cuda.amp  # which it was before 2.3
    own = scalers.GradScaler._unscale_grads_
    if hasattr(own, "of_shares"):
        return

    @functools.wraps(own)
    def unscale_grads(self: Any, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Any:
        if not (hasattr(optimizer, "_unscale_shares") and optimizer._reduces):
            return own(self, optimizer, inv_scale, found_inf, allow_fp16)
        return {found_inf.device: optimizer._unscale_shares(inv_scale).to(found_inf.device)}

    unscale_grads.of_shares = True  # type: ignore[attr-defined]
    _patches.replace("torch-grad-scaler-shares", scalers.GradScaler, "_unscale_grads_", unscale_grads)


never_trace(__name__)
