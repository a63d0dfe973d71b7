"""Finds out which errors of TensorFlow are errors of collectives."""

from __future__ import annotations

from typing import Optional

import tensorflow as tf

from horovod.common.exceptions import HorovodInternalError

# The shim's operations raise these for a failure of the engine; for a mismatch among the ranks,
# FailedPreconditionError.
_FAILURES = (tf.errors.UnknownError, tf.errors.AbortedError)


def internal_error(error: BaseException) -> Optional[HorovodInternalError]:
    """The HorovodInternalError for TensorFlow's ``error``; None if it has another cause."""
    if isinstance(error, _FAILURES) and "Horovod" in str(error):
        return HorovodInternalError(str(error))
    return None
