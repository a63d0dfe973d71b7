"""How objects travel: pickled, by cloudpickle where it is installed."""

from __future__ import annotations

import pickle
from typing import Any

loads = pickle.loads


def dumps(obj: Any) -> bytes:
    """``obj``, pickled. Imports cloudpickle on the first call, so that ``import horovod`` does not wait for it."""
    try:
        import cloudpickle
    except ImportError:  # objects of classes that every rank can import need no more
        return pickle.dumps(obj)
    content: bytes = cloudpickle.dumps(obj)
    return content
