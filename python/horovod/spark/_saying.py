"""What horovod.spark says to the person at the driver: lines of the logger ``horovod.spark``, which go to stderr."""

from __future__ import annotations

import logging

logger = logging.getLogger("horovod.spark")


def say(text: str) -> None:
    """Say one line. Warnings are shown even where nobody has configured logging."""
    logger.warning("horovod.spark: %s", text)
