"""Objects as text, for variables and arguments."""

from __future__ import annotations

import base64
from typing import Any


def dumps_base64(obj: Any, to_ascii: bool = True) -> Any:
    """Pickle an object by cloudpickle, and write it in base64.

    Args:
        obj: the object.
        to_ascii: return text; otherwise bytes.

    Returns:
        The text or the bytes, for :func:`loads_base64`.

    Example:
        >>> from horovod.runner.common.util.codec import dumps_base64, loads_base64
        >>> loads_base64(dumps_base64({"lr": 0.1}))
        {'lr': 0.1}
    """
    import cloudpickle

    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Any) -> Any:
    """Read an object that :func:`dumps_base64` wrote. Unpickling runs the sender's code, so the text must be from
    somebody whom you trust.

    Args:
        encoded: the text or bytes.

    Returns:
        The object.

    Example:
        >>> from horovod.runner.common.util.codec import dumps_base64, loads_base64
        >>> loads_base64(dumps_base64(1, to_ascii=False))
        1
    """
    import cloudpickle

    return cloudpickle.loads(base64.b64decode(encoded))
