"""One rank of :func:`horovod.runner.run`: ``python -m horovod.runner.run_task``, started by the launcher."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import Any


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
        except Exception:
            traceback.print_exc()
            result = ("error", traceback.format_exc())
        pickle.dump(result, results)
    return 0 if result[0] == "value" else 1


def _result(task: bytes) -> bytes:
    path, call = pickle.loads(task)
    sys.path.extend(entry for entry in path if entry not in sys.path)
    import cloudpickle

    func, args, kwargs = cloudpickle.loads(call)
    value: Any = func(*args, **kwargs)
    return cloudpickle.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
