"""The settings of a RayExecutor."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Optional, Sequence

from horovod.runner.common.util import timeout
from horovod.runner.elastic.discovery import HostDiscovery


@dataclasses.dataclass
class MiniSettings:
    """Settings of a job. ``RayExecutor.create_settings`` makes one.

    Args:
        nics: names of the network interfaces that the ranks may use; None is all.
        verbose: 2 or more makes the engine write its debug messages into the workers' logs.
        key: without effect: the ranks make the job's secret themselves, so that nobody can read it here.
        ssh_port: without effect: nothing is started by ssh.
        ssh_identity_file: the path of the file with ``create_settings``' ``ssh_str``; otherwise without effect.
        timeout_s: seconds until all ranks must have met in ``hvd.init()``.
        placement_group_timeout_s: seconds until the cluster must have room for all workers.
        elastic: whether ranks may come and go. RayExecutor sets it.
        num_proc: the number of ranks, if the executor is told none. An elastic job waits for so many before it starts.

    Example:
        >>> from horovod.ray.runner import MiniSettings
        >>> MiniSettings(timeout_s=60).start_timeout.remaining() <= 60
        True
    """

    nics: Optional[Sequence[str]] = None
    verbose: int = 1
    key: Any = dataclasses.field(default=None, repr=False)
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100
    elastic: bool = False
    num_proc: Optional[int] = None

    @property
    def start_timeout(self) -> timeout.Timeout:
        """``timeout_s`` seconds from now."""
        return timeout.Timeout(
            self.timeout_s,
            message="Timed out waiting for {activity}: more than {timeout} seconds. Set timeout_s in "
            "RayExecutor.create_settings to wait longer.",
        )

    def _environment(self) -> dict[str, str]:
        """The variables that pass these settings to the engine of each rank."""
        variables = {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(max(1, round(self.timeout_s)))}
        if self.verbose >= 2:
            variables["HOROVOD_LOG_LEVEL"] = "debug"
        return variables


@dataclasses.dataclass
class ElasticSettings(MiniSettings):
    """Settings of an elastic job. ``ElasticRayExecutor.create_settings`` makes one.

    Args:
        min_num_proc: the fewest workers with which the job can go on.
        max_num_proc: the most workers; None: as many as there is room for.
        reset_limit: how often the job may be formed anew; None is any number of times.
        elastic_timeout: seconds for each wait for room, and for workers.
        cooldown_range: for how many seconds a failed worker's slot stays unused; None: for ever.
        discovery: finds the hosts, if the executor has ``override_discovery=False``.
    """

    min_num_proc: int = 1
    max_num_proc: Optional[int] = None
    reset_limit: Optional[int] = None
    elastic_timeout: float = 600
    cooldown_range: Optional[Sequence[float]] = None
    discovery: Optional[HostDiscovery] = None


def elastic_arguments(settings: MiniSettings) -> dict[str, Any]:
    """The arguments of an elastic executor, by RayExecutor's names, of which ``settings`` have another value than the
    default."""
    names = {"min_num_proc": "min_workers", "max_num_proc": "max_workers"}
    found = {}
    for name in ("min_num_proc", "max_num_proc", "reset_limit", "cooldown_range", "elastic_timeout"):
        value = getattr(settings, name, None)
        if value is not None and value != getattr(ElasticSettings, name):
            found[names.get(name, name)] = value
    return found


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
