"""This rank's share of one parameter, on which the inner step of a sharded optimizer works."""

from __future__ import annotations

import math
from typing import Optional

import torch

from horovod.common.process_sets import ProcessSet
from horovod.torch._compiling import never_trace
from horovod.torch._shares import bounds

_NARROW = (torch.float16, torch.bfloat16)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements lie side by side, in whatever order of dimensions."""
    expected = 1
    if tensor.numel() == 0:
        return True
    for stride, length in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= length
    return True


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor in the order of their memory: a view of one dimension."""
    tensor = tensor.detach()
    return tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))


def flat_like(value: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The elements of ``value``, of the shape of ``p``, in the order in which ``p`` has them: a view, or a copy."""
    value = value.detach()
    if p.is_contiguous():
        return value.contiguous().view(-1)
    if value.stride() != p.stride():
        value = torch.empty_strided(p.shape, p.stride(), dtype=value.dtype, device=value.device).copy_(value)
    return flat(value)


class ParameterShare:
    """This rank's elements of a parameter, and for a 16-bit parameter their float32 masters.

    ``inner`` is what the inner step updates: a view of the parameter, or the masters.
    """

    __slots__ = ("_address", "_strides", "_used", "_view", "begin", "end", "inner", "master", "p")

    def __init__(self, p: torch.Tensor, process_set: ProcessSet) -> None:
        self.p = p
        self.begin, self.end = bounds(p.numel(), process_set)
        self.master: Optional[torch.Tensor] = None
        self._used, self._strides = False, p.stride()
        self._renew()

    def _renew(self) -> None:
        if not is_dense(self.p):
            raise ValueError(
                f"sharded=True needs parameters whose elements lie side by side; one of shape {list(self.p.shape)} has "
                f"the strides {list(self.p.stride())}"
            )
        if self._used and self._strides != self.p.stride():
            raise ValueError(
                f"sharded=True: a parameter of shape {list(self.p.shape)} has got another memory format (the strides "
                f"{list(self.p.stride())}, before {list(self._strides)}), so this rank's elements would be others. "
                "Change it before the first step"
            )
        self._address, self._strides = self.p.data_ptr(), self.p.stride()
        self._view = self.inner = flat(self.p)[self.begin : self.end]
        if self.master is not None:
            self.inner = self.master

    def whole(self) -> torch.Tensor:
        """All elements of the parameter, in the order of their memory: a view of one dimension."""
        return flat(self.p)

    @property
    def elements(self) -> int:
        return self.end - self.begin

    @property
    def is_narrow(self) -> bool:
        """Whether the share has, or will have, float32 masters."""
        return self.p.dtype in _NARROW

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """The part of ``value``, of the parameter's shape, that belongs to this share; a view if possible."""
        return flat_like(value, self.p)[self.begin : self.end]

    def of_sparse(self, gradient: torch.Tensor) -> torch.Tensor:
        """The elements of a sparse gradient of the parameter that belong to this share: sparse, of one dimension."""
        if not self.p.is_contiguous():
            raise ValueError(f"a sparse gradient of a parameter of shape {list(self.p.shape)} that is not contiguous")
        # Entries stay in their order, and those of one element apart, because the step adds them up one by one.
        dims = gradient.sparse_dim()
        strides = torch.tensor(self.p.stride()[:dims], device=gradient.device)
        first = (gradient._indices() * strides[:, None]).sum(0)
        row = math.prod(self.p.shape[dims:])
        places = (first[:, None] + torch.arange(row, device=gradient.device)).view(-1)
        mine = (places >= self.begin) & (places < self.end)
        places, values = places[mine] - self.begin, gradient._values().reshape(-1)[mine]
        part = torch.sparse_coo_tensor(places[None], values, (self.elements,), device=values.device)
        return part._coalesced_(gradient.is_coalesced())

    def prepare(self, apart: bool = False) -> torch.Tensor:
        """Bring ``inner`` up to date with the parameter, which the program may have changed, and return it.

        ``apart``: it must not be a view. PyTorch adds a sparse tensor of one dimension to a view in the wrong place.
        """
        if self._address != self.p.data_ptr() or self._strides != self.p.stride():
            self._renew()
        self._used = True
        if self.is_narrow:
            wide = self._view.float()
            if self.master is None:
                self.master = wide
            else:
                # An element that is no longer its master's rounded value was overwritten, for example by a checkpoint.
                kept = self.master.to(self.p.dtype) == self._view
                self.master.copy_(torch.where(kept, self.master, wide))
            self.inner = self.master
        else:
            self.inner = self._view.clone() if apart else self._view
        return self.inner

    def give(self, gradient: torch.Tensor) -> None:
        """Let the inner step use this gradient of the share."""
        self.inner.grad = gradient.to(self.inner.dtype)

    def take(self) -> None:
        """Bring the parameter's elements up to date with ``inner``, after the inner step."""
        self.inner.grad = None
        if self.inner is not self._view:
            self._view.copy_(self.inner)
            self.inner = self._view if self.master is None else self.master


never_trace(__name__)
