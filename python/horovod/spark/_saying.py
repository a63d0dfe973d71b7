"""Messages of horovod.spark to the user at the driver: lines of the logger ``horovod.spark``, which go to stderr."""

from __future__ import annotations

import logging

logger = logging.getLogger("horovod.spark")


def say(text: str) -> None:
    """Print a message. Warnings appear even if logging is not configured."""
    logger.warning("horovod.spark: %s", text)
