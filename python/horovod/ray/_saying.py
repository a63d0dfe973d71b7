"""Messages of horovod.ray to the user at the driver: lines of the logger ``horovod.ray``, which go to stderr."""

from __future__ import annotations

import logging

logger = logging.getLogger("horovod.ray")


def say(text: str) -> None:
    """Print a message. Warnings appear even if logging is not configured."""
    logger.warning("horovod.ray: %s", text)
