"""The two forms in which PyTorch's process groups take arguments: with an options object, and with plain values."""

from __future__ import annotations

import datetime
import functools
import inspect
from typing import Any, Callable, Optional, TypeVar

import torch
import torch.distributed as dist

M = TypeVar("M", bound=Callable[..., Any])


class Values:
    """Plain values, as attributes that an options object of PyTorch has."""

    def __init__(
        self, root: int = 0, op: Any = dist.ReduceOp.SUM, timeout: Optional[datetime.timedelta] = None
    ) -> None:
        self.rootRank = root
        self.reduceOp = op
        self.timeout = timeout


def forms(*names: str, lists: Optional[int] = None) -> Callable[[M], M]:
    """Let a method of the form ``(self, tensors…, opts)`` take ``(self, tensors…, *names, timeout)``, too.

    ``lists``: which of its two first arguments is a list of lists of tensors; it may be a list if the other one is a
    tensor.
    """

    def decorate(method: M) -> M:
        count = list(inspect.signature(method).parameters).index("opts") - 1
        plain = (*names, "timeout")

        @functools.wraps(method)
        def either(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = args[count:]
            if lists is not None and len(args) > 1 and isinstance(args[1 - lists], torch.Tensor):
                args = ([args[0]], args[1]) if lists == 0 else (args[0], [args[1]])
            if len(given) > 1 or given and not (given[0] is None or hasattr(given[0], "timeout")) or (
                kwargs and not kwargs.keys().isdisjoint(plain)
            ):  # fmt: skip
                values = dict(zip(plain, given), **{name: kwargs.pop(name) for name in plain if name in kwargs})
                given = (Values(**values),)
            return method(self, *args[:count], *given, **kwargs)

        return either  # type: ignore[return-value]

    return decorate
