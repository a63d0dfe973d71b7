"""Checks that this PyTorch is new enough for horovod.torch. Imported first: other modules would fail otherwise."""

from __future__ import annotations

import re

from horovod.common import _missing

_missing.need("horovod.torch", "torch", "torch")

import torch  # noqa: E402

OLDEST = (1, 13)


def check(version: str) -> None:
    """Raise ImportError for a version of PyTorch that is too old."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise ImportError(
            f"horovod.torch needs PyTorch {OLDEST[0]}.{OLDEST[1]} or later, and this is {version}: install a newer one "
            "(or Horovod 0.28.1 itself, uninstalling gorovod)"
        )


check(torch.__version__)
