"""Objects as text, for variables and arguments."""

from __future__ import annotations

import base64
from typing import Any


def dumps_base64(obj: Any, to_ascii: bool = True) -> Any:
    """``obj``, pickled by cloudpickle, in base64: as text, or with ``to_ascii=False`` as bytes."""
    import cloudpickle

    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Any) -> Any:
    """The object of :func:`dumps_base64`. Unpickling runs what the text says, so it must come from whom you trust."""
    import cloudpickle

    return cloudpickle.loads(base64.b64decode(encoded))
