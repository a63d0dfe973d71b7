"""Data loaders that define how their batches are made, and a thread that makes batches ahead."""

from __future__ import annotations

import queue
import sys
import threading
import weakref
from typing import Any, Iterator, NamedTuple, Optional

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader"]

_SLICE = 0.1  # seconds after which a thread that waits for room checks whether batches are still wanted


class BaseDataLoader:
    """A data loader. A subclass defines how many batches there are (``__len__``), and makes them (``_iterate``).

    Example:
        >>> class Loader(BaseDataLoader):
        ...     def __len__(self):
        ...         return 3
        ...     def _iterate(self):
        ...         yield from range(3)
        >>> list(Loader())
        [0, 1, 2]
    """

    def __len__(self) -> int:
        """How many batches an iteration has."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many batches it has: define __len__")

    def _iterate(self) -> Iterator[Any]:
        """The batches."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its batches are: define _iterate")

    def __iter__(self) -> Iterator[Any]:
        """The batches, each as ``_process_batch`` returns it."""
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        """Process a batch in the thread of the loop, such as a move to a device. A subclass may define it."""
        return batch


class AsyncDataLoaderMixin:
    """Lets a thread make the batches of a data loader ahead. Put it before the loader's class.

    Args:
        async_loader_queue_size: how many batches to make ahead; 0 makes them in the loop.
        debug_data_loader: whether to print on stderr how many batches were ready when the loop asked.
        args: for the loader's class.
        kwargs: for the loader's class.

    Example:
        >>> class Loader(BaseDataLoader):
        ...     def __len__(self):
        ...         return 3
        ...     def _iterate(self):
        ...         yield from range(3)
        >>> class AsyncLoader(AsyncDataLoaderMixin, Loader):
        ...     pass
        >>> loader = AsyncLoader(async_loader_queue_size=8)
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        if async_loader_queue_size < 0:
            raise ValueError(f"async_loader_queue_size={async_loader_queue_size}: at least 0 is needed")
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        self._running: weakref.WeakSet[_Ahead] = weakref.WeakSet()
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        """The batches of an iteration. A thread makes the next ones ahead. An error is raised in its turn."""
        batches: Iterator[Any] = self._iterate()  # type: ignore[attr-defined]
        if not self.async_loader_queue_size:
            for batch in batches:
                yield self._process_batch(batch)  # type: ignore[attr-defined]
            return
        ahead = _Ahead(batches, self.async_loader_queue_size)
        self._running.add(ahead)
        try:
            for number, batch in enumerate(ahead.batches()):
                if self.debug_data_loader:
                    print(f"batch {number}: {ahead.ready()} more are ready", file=sys.stderr, flush=True)
                yield self._process_batch(batch)  # type: ignore[attr-defined]
        finally:
            ahead.close()

    def close_async_loader(self) -> None:
        """End the threads of unfinished iterations. These iterations end, too."""
        for ahead in list(self._running):
            ahead.close()


class _Made(NamedTuple):
    """A batch; or the end, with its error if there was one."""

    batch: Any = None
    end: bool = False
    error: Optional[BaseException] = None


class _Ahead:
    """A thread that makes the batches of one iteration."""

    def __init__(self, batches: Iterator[Any], size: int) -> None:
        self._queue: queue.Queue[_Made] = queue.Queue(size)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._make, args=(batches,), name="horovod-data-loader", daemon=True)
        self._thread.start()

    def _make(self, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                if not self._put(_Made(batch)):
                    close = getattr(batches, "close", None)
                    if close is not None:
                        close()
                    return
        except BaseException as e:  # the loop raises it
            self._put(_Made(end=True, error=e))
        else:
            self._put(_Made(end=True))

    def _put(self, made: _Made) -> bool:
        """Whether batches are still wanted."""
        while not self._closed.is_set():
            try:
                self._queue.put(made, timeout=_SLICE)
            except queue.Full:
                continue
            return True
        return False

    def ready(self) -> int:
        """How many batches are made and not taken."""
        return self._queue.qsize()

    def batches(self) -> Iterator[Any]:
        """The batches, until the last or :meth:`close`."""
        while not self._closed.is_set():
            try:
                made = self._queue.get(timeout=_SLICE)
            except queue.Empty:
                continue
            if made.error is not None:
                raise made.error
            if made.end:
                return
            yield made.batch

    def close(self) -> None:
        """End the thread, once it has made its present batch."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
