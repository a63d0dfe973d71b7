"""The settings of a RayExecutor."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Optional, Sequence

from horovod.runner.common.util import timeout


@dataclasses.dataclass
class MiniSettings:
    """Settings of a job. ``RayExecutor.create_settings`` makes one.

    Args:
        nics: names of the network interfaces that the ranks may use; None is all.
        verbose: above 0 the job prints more.
        key: always None: the ranks make the job's secret themselves, so that nobody can read it here.
        ssh_port: not used, because nothing is started by ssh.
        ssh_identity_file: the path of the file with ``create_settings``' ``ssh_str``.
        timeout_s: seconds until all ranks must have met in ``hvd.init()``.
        placement_group_timeout_s: seconds until the cluster must have room for all workers.
        elastic: whether ranks may come and go. RayExecutor sets it.

    Example:
        >>> from horovod.ray.runner import MiniSettings
        >>> MiniSettings(timeout_s=60).start_timeout.remaining() <= 60
        True
    """

    nics: Optional[Sequence[str]] = None
    verbose: int = 1
    key: Optional[str] = None
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100
    elastic: bool = False

    @property
    def start_timeout(self) -> timeout.Timeout:
        """``timeout_s`` seconds from now."""
        return timeout.Timeout(
            self.timeout_s,
            message="Timed out waiting for {activity}: more than {timeout} seconds. Set timeout_s in "
            "RayExecutor.create_settings to wait longer.",
        )


def write_identity(path: Optional[str], content: Optional[str]) -> None:
    """Write an ssh key to a file that does not exist yet, readable by this user only."""
    if content is None:
        return
    if path is None:
        raise ValueError("ssh_str needs ssh_identity_file, the path of the file to write it to")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(file, "w") as opened:
        opened.write(content)


def refuse_unknown(call: str, given: dict[str, Any], instead: dict[str, str]) -> None:
    """Raise TypeError for arguments that ``call`` does not have. ``instead`` names the right ones."""
    for name in given:
        hint = f"; {instead[name]}" if name in instead else ""
        raise TypeError(f"{call} has no parameter {name!r}{hint}")
