"""What the values of an elastic state hold: an optimizer inside one would come back as a pickled copy."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Optional

# What has no attribute that could hold something of interest, so that assigning a number stays cheap.
_SIMPLE = (bool, int, float, complex, str, bytes, type(None))


# The classes of things that training changes, by module and path. They count if these attributes of theirs are not
# empty: a layer without weights is nothing but a function.
_TRAINED = {
    ("torch", "nn.Module"): ("state_dict",),
    ("torch", "optim.Optimizer"): (),
    ("keras", "layers.Layer"): ("weights",),
    ("keras", "optimizers.Optimizer"): (),
    ("keras", "optimizers.legacy.Optimizer"): (),
    ("tf_keras", "layers.Layer"): ("weights",),
    ("tf_keras", "optimizers.Optimizer"): (),
    ("tf_keras", "optimizers.legacy.Optimizer"): (),
    ("tensorflow", "Variable"): (),
    ("tensorflow", "Module"): ("variables",),
}


def is_trained(obj: Any) -> bool:
    """Whether training changes ``obj``: a model, a layer, a variable or an optimizer of a framework that is loaded."""
    for (module, path), contents in _TRAINED.items():
        if _is_instance(obj, module, path):
            return all(_content(obj, name) for name in contents)
    return False


def _is_instance(obj: Any, module: str, path: str) -> bool:
    """Whether ``obj`` is of the class at this path of a module; not if the program has not loaded that."""
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(obj, found)


def _content(obj: Any, name: str) -> Any:
    content = getattr(obj, name)
    return content() if callable(content) else content


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


class _Found(Exception):
    pass


def find(value: Any) -> Optional[Any]:
    """Find what pickling ``value`` would copy: the first object that is trained, or None.

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
            if is_trained(obj):
                found.append(obj)
                raise _Found
            # The content of an array is nothing but numbers.
            return "" if hasattr(obj, "__array__") and not isinstance(obj, type) else None

    try:
        Search(_Nowhere(), protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:
        pass
    return found[0] if found else None
