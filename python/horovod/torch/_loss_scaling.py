"""Gradients of scaled losses, for optimizers that a ``GradScaler`` does not know, such as that of a sparse table.

``scaler.scale(loss).backward()`` makes all gradients too large by a factor. The scaler divides those of the optimizers
that it steps, and skips a step whose gradients overflow. A :class:`Scaling` does both for gradients that are used
during the backward pass. Without a scaler it finds out that there is one.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from horovod.common import _patches
from horovod.common._reduce_ops import Sum
from horovod.common.process_sets import ProcessSet
from horovod.torch._collectives import allreduce_async_
from horovod.torch._compiling import never_trace
from horovod.torch._submission import synchronize

# How often an enabled scaler has scaled something in this process, since the first Scaling.
_scaled = 0


def _count_scaling() -> None:
    """Have each GradScaler count in _scaled. Nothing in a graph that goes backward shows that its loss was scaled."""
    scalers = torch.amp if hasattr(torch.amp, "GradScaler") else torch.cuda.amp  # which it was before 2.3
    scale = scalers.GradScaler.scale
    if hasattr(scale, "counted"):
        return

    @functools.wraps(scale)
    def counted(self: Any, outputs: Any) -> Any:
        global _scaled
        if self.is_enabled():
            _scaled += 1
        return scale(self, outputs)

    counted.counted = True  # type: ignore[attr-defined]
    _patches.replace("torch-grad-scaler", scalers.GradScaler, "scale", counted)


class Scaling:
    """What a table knows of the scale of its gradients.

    ``scaler`` is the enabled or disabled GradScaler of all losses that train the table; False: none of them is scaled;
    None: as False, but :meth:`check` refuses gradients if there is a scaler.
    """

    def __init__(self, scaler: Any, name: str, process_set: ProcessSet) -> None:
        needed = ("is_enabled", "get_scale", "unscale_")
        if scaler is not None and scaler is not False and not all(hasattr(scaler, method) for method in needed):
            raise TypeError(f"scaler must be a torch.amp.GradScaler, False or None, not {scaler!r}")
        self.scaler, self.name, self.process_set = scaler, name, process_set
        self._sign: Any = None  # see _report
        _count_scaling()
        self._seen = _scaled

    def __deepcopy__(self, memo: Any) -> Scaling:
        return self  # copies of a module have one table, and so one scaler

    @property
    def active(self) -> bool:
        """Whether gradients go through :meth:`unscale`."""
        return bool(self.scaler) and self.scaler.is_enabled()

    def check(self) -> None:
        """Raise ValueError if the gradients that have come are probably those of a scaled loss, without a scaler."""
        if self.scaler is None and _scaled != self._seen:
            self._seen = _scaled
            raise ValueError(
                f"table {self.name!r}: a GradScaler has scaled a loss since the last backward pass through this table, "
                "whose rows would be trained with the scaled gradients. Pass scaler=… with it when you make the table, "
                "or scaler=False if the losses that train the table are not scaled"
            )

    def passed(self) -> None:
        """Note that a backward pass has ended."""
        self._seen = _scaled

    def unscale(self, gradients: torch.Tensor, number: int) -> tuple[torch.Tensor, int]:
        """The gradients of the loss itself, and a question to all ranks, for :meth:`overflowed`.

        ``number`` is how many questions of the table have no answer yet.
        """
        gradients = gradients * (1.0 / self.scaler.get_scale())
        overflows = 1 - torch.isfinite(gradients).all().float().reshape(1)
        name = f"{self.name}.overflows.{number}"
        return gradients, allreduce_async_(overflows, name=name, op=Sum, process_set=self.process_set)

    def overflowed(self, question: int) -> bool:
        """Whether some rank has gradients that are not finite: then no rank uses its own, and the scale shrinks."""
        if not synchronize(question):
            return False
        self._report()
        return True

    def _report(self) -> None:
        """Have the scaler's update() see the overflow, as it sees one of an optimizer that it steps."""
        if self._sign is None:
            # The device is the scaler's kind: before 2.3 all scalers were for CUDA.
            weight = torch.zeros(1, device=getattr(self.scaler, "_device", "cuda"), requires_grad=True)
            self._sign = torch.optim.SGD([weight], lr=0.0)
        weight = self._sign.param_groups[0]["params"][0]
        weight.grad = torch.full_like(weight, float("inf"))
        try:
            self.scaler.unscale_(self._sign)
        except RuntimeError as e:
            if "already been called" not in str(e):  # it has seen an overflow since its last update()
                raise


never_trace(__name__)
