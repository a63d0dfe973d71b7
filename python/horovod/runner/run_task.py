"""One rank of :func:`horovod.runner.run`: ``python -m horovod.runner.run_task``, started by the launcher."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from types import TracebackType
from typing import Any, Optional


def main() -> int:
    """Call the function that stdin has, and hand its result to the launcher; the exit code."""
    descriptor = os.environ.pop("GOROVOD_RESULT_FD", None)
    if descriptor is None:
        print("horovod.runner.run_task: it is horovod.run that starts this", file=sys.stderr)
        return 2
    os.set_inheritable(int(descriptor), False)
    with open(int(descriptor), "wb") as results:
        try:
            result: tuple[str, Any] = ("value", _result(sys.stdin.buffer.read()))
        except Exception as error:
            frames = _own_frames(error)
            result = ("error", "".join(traceback.format_exception(type(error), error, frames)))
            if os.environ.get("HOROVOD_ELASTIC") == "1":
                sys.excepthook(type(error), error, frames)  # aloud: the caller hears of it only if the whole job fails
            else:
                _tell(error)
        pickle.dump(result, results)
    return 0 if result[0] == "value" else 1


def _own_frames(error: Exception) -> Optional[TracebackType]:
    """The traceback from the function's own frame on."""
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
    return cloudpickle.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
