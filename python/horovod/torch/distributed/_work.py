"""Work: torch.distributed's object for an operation that has been started."""

from __future__ import annotations

import collections
import datetime
import itertools
import threading
import time
from typing import Any, Callable, Optional, Sequence

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from horovod.common import _lib, _operations
from horovod.common._operations import Operation
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import _device_memory, _staging
from horovod.torch.distributed import _callbacks, _ends, _memory, _profiling
from horovod.torch.distributed._traces import Traces

# PyTorch's C++ keeps a Work alive without its Python half, at least before 2.7: calls then reach the base class, and
# hang. So every Work is held here until it has ended and its outcome was asked for. Of Works whose outcome nobody asks
# for, the latest ones are held.
_held: dict[int, Work] = {}  # by serial number
_serials = itertools.count()
_forgotten: collections.deque[int] = collections.deque()  # those of _held that have ended, and some that are gone
_FORGOTTEN_KEPT = 64
_look_at = 2 * _FORGOTTEN_KEPT  # so many in _held that it is time to check which have ended
_holding = threading.Lock()


def hold(work: Work) -> None:
    """Hold a new Work. Now and then, check which of the others have ended unnoticed."""
    global _look_at
    with _holding:
        _held[work._serial] = work
        # Not in a callback: callbacks of others would run inside of it, and two that do so may wait for one another.
        look = len(_held) >= _look_at and not _callbacks.inside()
        under_way = [w for w in _held.values() if not w._over and w is not work] if look else []
    if look:
        # Somebody sees to those with callbacks.
        _look_at = 2 * (_FORGOTTEN_KEPT + sum(bool(w._callbacks) or not w._has_ended() for w in under_way))


class Work(_TorchWork):
    """An operation that has been started; ``outputs`` are the tensors that it writes.

    A derived class defines :meth:`_await`, :meth:`_outcome` and :meth:`_see_to`, and calls :func:`hold` when it is
    made. All methods may be called on any thread.

    On a GPU the end means that the outputs are ready for the stream that was current when :meth:`wait` returned, or
    when :meth:`is_completed` said so: its work waits for them. As everywhere in PyTorch, other streams do not.

    Example:
        >>> dist.init_process_group("gorovod", init_method="horovod://")
        >>> work = dist.all_reduce(torch.tensor([1.0]), async_op=True)
        >>> work.wait()
        True
        >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        what: str,
        outputs: Sequence[torch.Tensor],
        timeout: datetime.timedelta,
        origin: Optional[_callbacks.Origin],
    ) -> None:
        super().__init__()
        self._what = what
        self._outputs = list(outputs)
        self._on_gpu = bool(self._outputs) and self._outputs[0].is_cuda
        self._limit = timeout.total_seconds()
        self._started = time.monotonic()
        self._mutex = threading.Lock()
        self._concluding = threading.Lock()
        self._over = False
        self._failure: Optional[Exception] = None
        self._asked = False
        self._overdue: Optional[Exception] = None  # for a thread that has the future
        self._future: Optional[torch.futures.Future] = None
        self._end: Optional[torch.futures.Future] = None  # the future that the outcome follows, until it is set
        self._callbacks: list[Callable[[], None]] = []
        self._origin = origin  # of callbacks; None for a group of no operations
        self._serial = next(_serials)
        self._reached: Any = None  # after the end: the GPU's event at which the outputs are ready

    # Methods of derived classes.

    def _await(self, seconds: float) -> bool:
        """Wait for the end, at most this long, and return whether it has come."""
        raise NotImplementedError

    def _outcome(self) -> None:
        """Put the outputs into their places, or raise the operation's error. Called once, after the end."""
        raise NotImplementedError

    def _see_to(self) -> None:
        """Make sure that :meth:`_conclude` is called at the end, although nobody waits. Called at most once."""
        raise NotImplementedError

    # Methods for derived classes.

    def _has_ended(self) -> bool:
        """Whether the operation has ended, and its outcome is noted; never blocks, and lets no stream wait."""
        if not self._over and not (self._on_gpu and _staging.capturing()) and self._await(0.0):
            self._conclude()
        return self._over

    def _conclude(self) -> None:
        """Note the outcome, and notify waiting threads. Only after the end."""
        with self._concluding:
            if self._over:
                return
            try:
                self._outcome()
            except Exception as e:
                self._failure = e if isinstance(e, HorovodInternalError) else HorovodInternalError(str(e))
            with self._mutex:
                self._over = True
                callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self._let_go()

    def _then(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after the end: at once, or later on another thread."""
        with self._mutex:
            over, first = self._over, not self._callbacks
            if not over:
                self._callbacks.append(callback)
        if over:
            callback()
        elif first:
            self._see_to()

    def _let_go(self) -> None:
        """Stop holding this Work as soon as nobody can need it."""
        with _holding:
            if not self._over or self._serial not in _held:
                return
            if self._asked:
                del _held[self._serial]
                return
            _forgotten.append(self._serial)
            while len(_forgotten) > _FORGOTTEN_KEPT:
                _held.pop(_forgotten.popleft(), None)

    # Methods that torch.distributed calls.

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Wait for the end; then the outputs are valid.

        Raises HorovodInternalError (a RuntimeError) with the cause if the operation failed. Raises it also if the
        operation has not ended within ``timeout``; by default, within the group's time-out from its start. Then the
        operation continues. Raises ValueError while the current stream is captured into a CUDA graph.
        """
        if self._on_gpu:
            _staging.check_no_capture()
        if not self._over:
            limit = timeout.total_seconds()
            left = limit if limit > 0 else self._started + self._limit - time.monotonic()
            with _profiling.event("wait"):
                if not self._await(max(left, 0.0)):
                    raise self._too_late(limit if limit > 0 else self._limit)
            self._conclude()
        self._asked = True
        self._let_go()
        if self._failure is not None:
            raise self._failure
        self._join_stream()
        return True

    def synchronize(self) -> None:
        """As :meth:`wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation has ended, well or badly; never blocks.

        While a CUDA graph is captured, only whether that is known already.
        """
        if self._on_gpu and _staging.capturing():
            return self._over
        if self._has_ended():
            self._join_stream()
        return self._over

    def is_success(self) -> bool:
        """Whether the operation has ended well."""
        return self.is_completed() and self._failure is None

    def exception(self) -> Optional[Exception]:
        """The error of the operation; None if it has not failed."""
        return self._failure if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The outputs; waits for them."""
        self.wait()
        return self._outputs

    def get_future(self) -> torch.futures.Future:
        """A future of the list of outputs. If the operation fails it holds a RuntimeError with the cause."""
        self._asked = True
        with self._mutex:
            if self._future is not None:
                return self._future
            devices = list({t.device for t in self._outputs if t.device.type == "cuda"})
            self._end = torch.futures.Future(devices=devices)
            # For C++, too, a future fails only if a callback raises.
            future = self._future = _callbacks.then(self._end, self._value)
            if self._origin is not None:
                _callbacks.belongs(future, self._origin)
        self._then(self._set_future)
        return future

    def _set_future(self) -> None:
        with self._mutex:
            end, self._end = self._end, None
        if end is not None:
            _callbacks.set_result(end, None)

    def _value(self, _: Any) -> list[torch.Tensor]:
        failure = self._failure or self._overdue
        if failure is not None:
            raise failure
        self._join_stream()  # the current stream is one that PyTorch made for the future
        return self._outputs

    def _join_stream(self) -> None:
        """Make the current stream of the outputs' GPU, if they have one, wait for them.

        Raises ValueError while it is being captured into a CUDA graph.
        """
        if self._reached is not None:
            _staging.check_no_capture()
            stream, event = self._reached
            _device_memory._cuda.current_stream(stream.device).wait_event(event)

    def _outlast(self) -> None:
        """Wait for the end. The future fails if that exceeds the group's time-out."""
        with _profiling.event("wait"):
            ended = self._over or self._await(max(self._started + self._limit - time.monotonic(), 0.0))
        if ended:
            self._conclude()
        else:
            self._overdue = self._too_late(self._limit)
            self._set_future()

    def _too_late(self, seconds: float) -> HorovodInternalError:
        return HorovodInternalError(f"{self._what} has not ended within {seconds:g} s; it is still under way.")


class Collective(Work):
    """A collective of the engine, or a group of them that start together.

    :mod:`horovod.common._operations` describes its life. ``keep`` keeps its tensors alive. ``finish``, called with the
    handles, copies the results to the outputs. ``latest`` has the latest operation under way of each name: the engine
    accepts one of a name at a time, so this one is submitted at the end of the one before. ``late`` has the collectives
    that copy results to their outputs after the end; None if this one does not. ``traces`` are those of the group,
    ``origin`` is that of callbacks. ``submitted``: the operations are under way already. Raises as ``_lib.error`` says.
    """

    def __init__(
        self,
        what: str,
        name: str,
        outputs: Sequence[torch.Tensor],
        timeout: datetime.timedelta,
        operations: list[Operation],
        keep: object,
        finish: Optional[Callable[[Sequence[int]], None]],
        latest: dict[str, Collective],
        late: Optional[list[Collective]],
        traces: Traces,
        origin: _callbacks.Origin,
        submitted: bool = False,
    ) -> None:
        self._latest = latest
        self._late, self._traces = late, traces
        self._before = before = latest.get(name)
        self._key = name
        super().__init__(what, outputs, timeout, origin)
        self._on_gpu = self._on_gpu or bool(operations) and operations[0].device >= 0  # a root alone has outputs
        self._group = _operations.Group(operations)
        # After its release, an operation belongs to another collective.
        self._handles: Sequence[int] = [operation.handle for operation in operations] if submitted else ()
        self._keep: object = keep
        self._finish = finish
        self._refused: Optional[Exception] = None
        latest[name] = self  # from here on other threads know it
        if late is not None:
            late.append(self)
        if not submitted:
            self._submit_after(before)
        hold(self)

    def _submit_after(self, before: Optional[Collective]) -> None:
        if before is None or (before._over if _callbacks.inside() else before._has_ended()):
            self._submit()
            if self._refused is not None:
                self._conclude()
                raise self._refused
        else:
            before._then(self._submit)

    def settle(self, tensors: Sequence[torch.Tensor]) -> None:
        """Wait for the end if it uses memory of ``tensors``. Raises HorovodInternalError if it takes too long.

        Then the group's traces tell what a GPU's stream has to wait for.
        """
        kept = (operation.keeps or () for operation in self._group.operations)
        used = [*self._outputs, *(tensor for memory in kept for tensor, *_ in memory)]
        if not any(_memory.overlap(a, b) for a in used for b in tensors):
            return
        if self._on_gpu:
            _staging.check_no_capture()
        if not self._over:
            if not self._await(max(self._started + self._limit - time.monotonic(), 0.0)):
                raise self._too_late(self._limit)
            self._conclude()

    def _submit(self) -> None:
        try:
            self._group.submit_as_fits(self._key.encode())
            self._handles = [operation.handle for operation in self._group.operations]
        except Exception as e:
            self._refused = e
        self._before = None

    def _await(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        before = self._before
        if before is not None:
            if not before._await(seconds):
                return False
            before._conclude()
            while self._before is not None:  # the thread that concludes it submits this one
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.0001)
        # Another thread may release the operations meanwhile: then they have ended, whatever the status says.
        return self._group.status() != _lib.IN_PROGRESS or _operations.wait_until(self._handles, deadline)

    def _outcome(self) -> None:
        try:
            if self._refused is not None:
                raise self._refused
            if self._group.wait() != _lib.OK:
                raise self._group.failure()
            for operation in self._group.operations:
                _memory.check_unmoved(operation.keeps, self._what)
            self._bring()
        finally:
            # An interrupt amid this may lose the memory of an operation, but not give it back twice.
            group, self._group = self._group, _operations.Group([])
            self._finish = None
            if self._refused is None:
                group.release()
            else:
                group.free()
            self._keep = None  # this frees the tensors, too
            if self._late is not None:
                self._late.remove(self)
            if self._latest.get(self._key) is self:
                del self._latest[self._key]

    def _bring(self) -> None:
        """Copy the results to the outputs; on a GPU, in a stream."""
        if self._finish is None and not self._on_gpu:
            return
        finish = self._finish or (lambda _: None)
        stream = _memory.follow(self._group.operations)
        if stream is None:
            finish(self._handles)
            return
        with _device_memory._cuda.stream(stream):
            finish(self._handles)
            for output in self._outputs:
                output.record_stream(stream)
        self._reached = stream, self._traces.record(stream, self._outputs, self._late is not None)

    def _ended(self) -> bool:
        """Whether the operation has ended; makes no call."""
        if self._over:
            return True
        if self._before is not None:
            return False
        return self._refused is not None or self._group.status() != _lib.IN_PROGRESS

    def _see_to(self) -> None:
        _ends.see_to(self)
