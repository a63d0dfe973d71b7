"""Whether Ray is installed, and new enough. Importing this module raises ImportError if not."""

import re

_OLDEST = (2, 60)
_WANTED = f"horovod.ray needs Ray {'.'.join(map(str, _OLDEST))} or later: pip install 'gorovod[ray]'"

try:
    import ray
except ModuleNotFoundError as e:
    if e.name != "ray":
        raise
    raise ModuleNotFoundError(f"{_WANTED}. Ray is not installed here.", name="ray") from None

_found = getattr(ray, "__version__", "")
if tuple(map(int, re.findall(r"\d+", _found)[:2])) < _OLDEST:
    raise ImportError(f"{_WANTED}. This is Ray {_found or 'of an unknown version'}, of {ray.__path__[0]}.", name="ray")
