"""The short way from a group's methods to the engine, through the extension (``shim/python/groups.c``).

The extension submits an operation in the plain case: tensors in host memory, no profiler, no callback, no coalescing.
All else goes the long way, which has all checks and error messages.

PyTorch's own blocking calls, such as ``dist.all_reduce(tensor)``, wait for their Work at once and drop it. A method
recognises such a call by the code of its caller, and by its ``async_op``. Then the extension also waits for the end,
and there is no Work, unless the operation has failed or takes long.
"""

from __future__ import annotations

import datetime
import inspect
import types
from sys import _getframe
from typing import Any, Optional

import torch
import torch.distributed as dist

from horovod.common import _lib
from horovod.common._operations import Operation
from horovod.torch._collectives import _join as _joining
from horovod.torch._submission import native
from horovod.torch.distributed import _base, _callbacks, _profiling
from horovod.torch.distributed._base import Base

# How long the extension waits, in milliseconds, until the operation becomes a Work: Ctrl-C and time-outs have to wait
# for that.
_PATIENCE_MS = 10
_NOT_AT_ALL = -1
NO_TIME = datetime.timedelta(0)

# Operations that the extension has submitted, and that no Work has yet. An interrupt may leave some here.
_adrift: dict[Operation, None] = {}
if native is not None:
    native.setup_groups(_base.pool.free, _base.pool.grow, _adrift)


class Ended:
    """What PyTorch's blocking functions get in place of a Work."""

    def wait(self) -> bool:
        return True


_ended = Ended()

# Local names, because each operation looks them up.
_enabled, _here, _running = _profiling.enabled, _callbacks.here, _callbacks.running


def code_of(*names: str) -> Optional[types.CodeType]:
    """The code of the first of PyTorch's functions of these names; None if it is not as expected."""
    function = next((getattr(dist, name) for name in names if hasattr(dist, name)), None)
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return code if isinstance(code, types.CodeType) and "async_op" in code.co_varnames[: code.co_argcount] else None


def blocking(code: Optional[types.CodeType]) -> Optional[dict[str, Any]]:
    """The arguments of the caller's caller if it has this code, and is going to wait; else None."""
    try:
        caller = _getframe(2)
    except ValueError:  # a thread of C++
        return None
    if caller.f_code is not code:
        return None
    given = caller.f_locals
    return None if given["async_op"] else given


class Short(Base):
    """The part of a group that takes the short way."""

    _started = 0  # operations that every rank starts
    _extension = NO_TIME  # of the next operation's time-out

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._coalescing: dict[int, list[Any]] = {}  # what threads collect, by their numbers, since _start_coalescing
        self._patience_ms = min(_PATIENCE_MS, int(self._timeout.total_seconds() * 1000))

    def _takes_short_way(self) -> bool:
        """Whether nothing is in progress that needs the long way of each operation."""
        return not (
            native is None
            or self._late
            or self._coalescing
            or self._traces.kept
            or self._joins != _joining.joins_ended
            or self._extension is not NO_TIME
            or (_running and _here.callback is not None)
            or _enabled()
        )

    def _run(
        self, kind: str, engine_kind: int, source: Optional[torch.Tensor], target: Optional[torch.Tensor], options: Any,
        reduce_op: int, root: int, waits: bool,
    ) -> Any:  # fmt: skip
        """Submit an operation on a tensor and another, or the same, or none, and wait for the end if it ``waits``.

        Returns a Work or the like; None if it is not plain, and nothing has been done.
        """
        assert native is not None, "only with the extension"
        number = self._returned.pop() if self._returned else next(self._counter)
        key = number % _base._NAMES
        if self._latest and self._name(str(key)) in self._latest:
            self._returned.append(number)
            return None
        self._started += 1
        operation = native.run_in_group(
            engine_kind, source, target, self._prefix, key, self._set.number, self._number, reduce_op, root,
            len(self._ranks), self._patience_ms if waits else _NOT_AT_ALL,
        )  # fmt: skip
        if operation is True:
            return _ended
        if operation is None:
            self._started -= 1
            self._returned.append(number)
            return None
        operation.take_over()
        outputs = [] if target is None else [target]
        finish = None
        if engine_kind == _lib.ALLTOALL:
            assert target is not None, "only a barrier has none"
            finish = self._same_rows(target)
        work = self._collective(
            kind, str(key), number, outputs, self._limit(options), [operation], finish, submitted=True
        )  # fmt: skip
        del _adrift[operation]
        return work
