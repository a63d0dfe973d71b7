"""Which errors of TensorFlow are those of collectives."""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from horovod.common.exceptions import HorovodInternalError

# What the shim's operations raise for a failure of the engine; a mismatch among the ranks is a FailedPreconditionError.
_FAILURES = (tf.errors.UnknownError, tf.errors.AbortedError)


def internal_error(error: BaseException) -> Optional[HorovodInternalError]:
    """The HorovodInternalError that TensorFlow's ``error`` stands for; None where it has another cause."""
    if isinstance(error, _FAILURES) and "Horovod" in str(error):
        return HorovodInternalError(str(error))
    return None
