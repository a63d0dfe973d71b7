"""A worker's results and exceptions on their way back; some of them cannot be pickled."""

from __future__ import annotations

import functools
import os
import pickle
import socket
from typing import Any, Callable, Optional

from ray import cloudpickle

from horovod.ray import _pickling

_PLAIN = (type(None), bool, int, float, complex, str, bytes)  # types that can always be pickled


def call(func: Callable[[], Any], who: str) -> Any:
    """Call ``func``, and return its result, or raise its exception, in a form that Ray can send.

    ``who`` is the worker, such as ``"rank 3"``. The driver gets the result itself. If the result cannot be pickled, Ray
    raises a TypeError of ours instead.
    """
    try:
        value = func()
    except Exception as error:
        stand_in = _stand_in(error, who)
        if stand_in is None:
            raise
        raise stand_in from error  # Ray shows both tracebacks
    return value if type(value) in _PLAIN else Result(value, who)


class Result:
    """A result on its way: pickling it pickles ``value``, and unpickling it returns ``value``."""

    def __init__(self, value: Any, who: str) -> None:
        self.value = value
        self._who = who

    def __reduce__(self) -> tuple[Any, ...]:
        buffers: list[pickle.PickleBuffer] = []  # arrays, which are not copied
        try:
            data = cloudpickle.dumps(self.value, protocol=5, buffer_callback=buffers.append)
        except Exception as error:
            raise TypeError(
                f"what {_at(self._who)} has returned cannot be sent to the driver: "
                f"{_pickling.culprit(self.value, error)}. Return what can be pickled, such as numbers, arrays, tensors."
            ) from error
        return functools.partial(pickle.loads, buffers=buffers), (pickle.PickleBuffer(data),)


def _stand_in(error: Exception, who: str) -> Optional[Exception]:
    """The exception to raise in place of one that cannot be pickled and unpickled; None if it can."""
    try:
        pickle.loads(cloudpickle.dumps(error))
        return None
    except Exception as trouble:
        why = _pickling.culprit(error, trouble)
    return RuntimeError(
        f"{_at(who)} has raised {type(error).__name__}: {error}. This RuntimeError stands for that exception, which "
        f"cannot be sent to the driver: {why}"
    )


def _at(who: str) -> str:
    return f"{who} (pid {os.getpid()} on {socket.gethostname()})"
