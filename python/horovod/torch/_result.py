"""The result of an operation, for several readers."""

from __future__ import annotations

import copy
from typing import Any, Optional

from horovod.common.exceptions import HorovodInternalError
from horovod.torch._compiling import never_trace
from horovod.torch._submission import generation, is_known, poll, synchronize


class Result:
    """The result of one operation, even after its handle refers to another one.

    Calling it is like :func:`synchronize`, but it returns or raises the same each time. HorovodInternalError if Horovod
    was shut down before the first call.
    """

    __slots__ = ("__weakref__", "_failure", "_generation", "_handle", "_output")

    def __init__(self, handle: int) -> None:
        self._handle: Optional[int] = handle  # None once it was synchronised
        self._generation = generation()
        self._output: Any = None
        self._failure: Optional[Exception] = None

    def is_due(self) -> bool:
        """Whether the result was not fetched yet, and is not lost."""
        return self._handle is not None and self._generation == generation()

    def has_ended(self) -> bool:
        """Whether a call would not wait."""
        return not self.is_due() or poll(self._handle)  # type: ignore[arg-type]

    def __call__(self) -> Any:
        if self._handle is not None:
            try:
                if self._generation == generation():
                    self._output = synchronize(self._handle)
                if self._output is None:
                    raise HorovodInternalError("Horovod was shut down before the result of this operation was fetched.")
            except Exception as e:
                if is_known(self._handle):
                    raise  # the end is not known: a CUDA graph is being captured
                self._failure = e.with_traceback(None)
            self._handle = None
        if self._failure is not None:
            raise copy.copy(self._failure)  # the stack of the exception would keep this object, and its callers, alive
        return self._output


never_trace(__name__)
