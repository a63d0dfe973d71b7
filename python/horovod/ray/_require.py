"""Checks that Ray is installed, and new enough. Otherwise importing this module raises ImportError."""

import re
import sys

_OLDEST = (2, 60)
_WANTED = f"horovod.ray needs Ray {'.'.join(map(str, _OLDEST))} or later: pip install 'gorovod[ray]'"

try:
    import ray
except ModuleNotFoundError as e:
    if e.name != "ray":
        raise
    raise ModuleNotFoundError(f"{_WANTED}. Ray is not installed in {sys.executable}.", name="ray") from None

_found = getattr(ray, "__version__", None)
_where = getattr(ray, "__file__", None) or ", ".join(ray.__path__)
if _found is None:  # such as a folder of that name beside the program
    raise ModuleNotFoundError(f"{_WANTED}. What Python finds as 'ray', {_where}, is something else.", name="ray")
if tuple(map(int, re.findall(r"\d+", _found)[:2])) < _OLDEST:
    raise ImportError(f"{_WANTED}. This is Ray {_found}, {_where}.", name="ray")


def inside(error: Exception) -> ImportError:
    """The error for a missing name that Ray does not promise to keep; no promised name can replace it."""
    return ImportError(
        f"this Ray, {_found}, lacks what gorovod uses inside it ({error}). gorovod works with Ray 2.60: "
        "pip install 'ray==2.60.*', or a newer gorovod"
    )
