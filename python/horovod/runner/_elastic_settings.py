"""Settings of the engine that the driver of an elastic job must know, too."""

from __future__ import annotations

import os
from typing import Any, Mapping

_HEARTBEAT = "GOROVOD_HEARTBEAT_SECONDS"
_CHECKPOINTS = "GOROVOD_CHECKPOINT_DIR"
_BLACKLIST = "GOROVOD_ELASTIC_BLACKLIST"


def told_by_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    """Fields of docs/drive.md's ``config``, derived from the workers' ``variables`` and this process's."""
    told: dict[str, Any] = {}
    environment = {**os.environ, **variables}
    if environment.get(_HEARTBEAT):
        try:
            told["heartbeat"] = float(environment[_HEARTBEAT])
        except ValueError:
            raise ValueError(f"{_HEARTBEAT}={environment[_HEARTBEAT]!r}: a number of seconds is needed") from None
    if environment.get(_CHECKPOINTS):
        told["resumable"] = True
    if environment.get(_BLACKLIST) == "host":
        told["whole_hosts"] = True
    return told
