"""One rank of :func:`horovod.runner.run`: ``python -m horovod.runner.run_task``, started by the launcher."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from types import TracebackType
from typing import Any, Optional

from horovod.runner import _handover


def main() -> int:
    """Call the function of ``horovod.run``, and return the result to the program that called ``horovod.run``.

    Returns:
        The exit code: 0 if the function returned, 1 if it raised, 2 if no ``horovod.run`` started this process.

    Example:
        >>> from horovod.runner.run_task import main
        >>> main()  # of a process that horovod.run did not start
        2
    """
    caller = os.environ.pop(_handover.VARIABLE, None)
    descriptor = os.environ.pop("GOROVOD_RESULT_FD", None)
    if caller is not None:
        connection = _handover.Caller(caller)
        kind, content = _call(connection.task)
        connection.send(pickle.dumps((kind, content)))
    elif descriptor is not None:
        os.set_inheritable(int(descriptor), False)
        with open(int(descriptor), "wb") as results:
            kind, content = _call(sys.stdin.buffer.read())
            pickle.dump((kind, content), results)
    else:
        print("horovod.runner.run_task: it is horovod.run that starts this", file=sys.stderr)
        return 2
    return 0 if kind == "value" else 1


def _call(task: bytes) -> tuple[str, Any]:
    """``("value", …)`` with the function's result, or ``("error", …)`` with the traceback."""
    try:
        return "value", _result(task)
    except Exception as error:
        frames = _own_frames(error)
        if os.environ.get("HOROVOD_ELASTIC") == "1":
            sys.excepthook(type(error), error, frames)  # print it now: the caller gets it only if the whole job fails
        else:
            _tell(error)
        return "error", "".join(traceback.format_exception(type(error), error, frames))


def _own_frames(error: Exception) -> Optional[TracebackType]:
    """The traceback, starting at the function's own frame."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


def _tell(error: Exception) -> None:
    """Tell the other ranks, if the function has joined them."""
    basics = sys.modules.get("horovod.common.basics")
    if basics is not None:
        from horovod.common import _last_words

        _last_words.tell(error)


def _result(task: bytes) -> bytes:
    path, call = pickle.loads(task)
    sys.path.extend(entry for entry in path if entry not in sys.path)
    import cloudpickle

    func, args, kwargs = cloudpickle.loads(call)
    value: Any = func(*args, **kwargs)
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        from horovod.runner import _unpicklable

        what = _unpicklable.culprit(value, error)
        raise TypeError(f"the function has returned a value that cannot be sent back: {what}") from None


if __name__ == "__main__":
    sys.exit(main())
