"""What the values of an elastic state hold: an optimizer inside one would come back as a pickled copy."""

from __future__ import annotations

import pickle
from typing import Any, Callable, Optional

# What has no attribute that could hold something of interest, so that assigning a number stays cheap.
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Found(Exception):
    pass


def find(value: Any, wanted: Callable[[Any], bool]) -> Optional[Any]:
    """Find what pickling ``value`` would copy: the first object that is ``wanted``, or None.

    A value that cannot be pickled is searched up to what cannot be: to send it raises pickle's own error.
    """
    if isinstance(value, _SIMPLE):
        return None
    try:
        from cloudpickle import Pickler
    except ImportError:
        from pickle import Pickler
    found = []

    class Search(Pickler):
        def persistent_id(self, obj: Any) -> Optional[str]:
            if wanted(obj):
                found.append(obj)
                raise _Found
            # The content of an array is nothing but numbers.
            return "" if hasattr(obj, "__array__") and not isinstance(obj, type) else None

    try:
        Search(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:
        pass
    return found[0] if found else None
