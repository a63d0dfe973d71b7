"""Where GPUs may still write results, after their collectives have ended for the host."""

from __future__ import annotations

import collections
import threading
from typing import Any, Sequence

import torch

from horovod.torch import _device_memory, _staging
from horovod.torch.distributed import _memory


class Trace:
    """Results of one collective, which are there at ``event``. ``copied``: from elsewhere, after its end."""

    __slots__ = ("_complete", "copied", "event", "outputs")

    def __init__(self, outputs: Sequence[torch.Tensor], event: Any, copied: bool) -> None:
        self.outputs = [_memory.extent(tensor) for tensor in outputs]  # not the tensors: their memory may go
        self.event = event
        self.copied = copied
        self._complete = _staging.completion(event)

    def is_over(self) -> bool:
        return self._complete()


class Traces:
    """The traces of a group that may not be over. All methods may be called on any thread."""

    def __init__(self) -> None:
        self.kept: collections.deque[Trace] = collections.deque()  # the oldest first; one stream ends them in order
        self._mutex = threading.Lock()

    def record(self, stream: Any, outputs: Sequence[torch.Tensor], copied: bool) -> Any:
        """Record an event in the stream, at which these outputs are there, and keep its trace. Returns the event."""
        with self._mutex:
            event = stream.record_event()
            self.kept.append(Trace(outputs, event, copied))
        return event

    def join(self, tensors: Sequence[torch.Tensor], copied_only: bool) -> None:
        """Make the current stream wait for results in the memory of ``tensors``.

        ``copied_only``: no others, since the engine orders its own work on the same memory.
        """
        with self._mutex:
            while self.kept and self.kept[0].is_over():
                self.kept.popleft()
            traces = [trace for trace in self.kept if trace.copied or not copied_only]
        if not traces:
            return
        extents = [_memory.extent(tensor) for tensor in tensors if tensor.is_cuda]
        for trace in reversed(traces):
            for device, begin, end in trace.outputs:
                if any(device == d and begin < e and b < end for d, b, e in extents):
                    _staging.check_no_capture()
                    _device_memory._cuda.current_stream(device).wait_event(trace.event)
                    return  # the earlier ones are earlier in the same stream
