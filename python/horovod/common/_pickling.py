"""How objects travel: pickled, by cloudpickle where it is installed."""

from __future__ import annotations

import pickle
from typing import Any

loads = pickle.loads


def dumps(obj: Any) -> bytes:
    """``obj``, pickled. Imports cloudpickle on the first call, so that ``import horovod`` does not wait for it."""
    try:
        import cloudpickle
    except ImportError:  # plain pickle suffices if every rank can import the object's class
        return pickle.dumps(obj)
    content: bytes = cloudpickle.dumps(obj)
    return content
