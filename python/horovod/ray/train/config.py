"""The settings of Horovod under Ray Train."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Type

from ray.train.backend import Backend, BackendConfig

from horovod.ray import _given
from horovod.ray.train import worker
from horovod.ray.train.backend import HorovodBackend
from horovod.runner.common.util.timeout import Timeout

_BY_SSH = "nothing is started by ssh"
# Arguments of Ray's own HorovodConfig that have no effect here, and why.
_UNUSED = {
    "key": "the workers make a fresh secret themselves each time that they start, so that none travels as an argument",
    "ssh_port": _BY_SSH,
    "ssh_identity_file": _BY_SSH,
    "ssh_str": _BY_SSH,
}


@dataclass
class HorovodConfig(BackendConfig):
    """How Ray Train sets Horovod up on its workers.

    Args:
        nics: names of the network interfaces on which the ranks listen for one another; all of a host's by default
            (``HOROVOD_GLOO_IFACE``).
        verbose: 2 or more makes the engine write its debug messages into the workers' logs.
        key: no effect: the workers make a fresh secret themselves each time they start.
        ssh_port: no effect, like ``ssh_identity_file`` and ``ssh_str``: nothing is started by ssh.
        ssh_identity_file: no effect.
        ssh_str: no effect; nothing is written.
        timeout_s: how many seconds the ranks wait for one another in ``hvd.init()``.
        placement_group_timeout_s: how many seconds the run waits for room each time it starts its workers. After that
            ``fit()`` raises a ``ControllerError`` whose ``controller_failure`` is a TimeoutError. None, the default,
            means no limit, as in Ray Train.

    Raises:
        ValueError: a time limit is not above 0.

    Example:
        >>> HorovodConfig(nics=["eth0"], timeout_s=600).timeout_s
        600
    """

    nics: Optional[Iterable[str]] = None
    verbose: int = 1
    key: Any = field(default=None, repr=False)
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    ssh_str: Optional[str] = field(default=None, repr=False)
    timeout_s: float = 300
    placement_group_timeout_s: Optional[float] = None

    def __post_init__(self) -> None:
        for name, why in _UNUSED.items():
            if getattr(self, name) is not None:
                warnings.warn(f"HorovodConfig({name}=…) has no effect: {why}", stacklevel=3)
                setattr(self, name, None)  # so that Ray never sends it anywhere
        if isinstance(self.nics, str):
            self.nics = [self.nics]
        _given.names("HorovodConfig: nics", self.nics)
        for name in ("timeout_s", "placement_group_timeout_s"):
            value = getattr(self, name)
            if value is None and name == "placement_group_timeout_s":
                continue
            _given.number(f"HorovodConfig: {name}", value)
            if not value > 0:
                raise ValueError(f"HorovodConfig({name}={value}): the limit must be above 0 seconds")

    @property
    def start_timeout(self) -> Timeout:
        """A deadline, ``timeout_s`` from now."""
        return Timeout(self.timeout_s, message="the workers did not meet in {timeout} seconds: {activity}.")

    @property
    def backend_cls(self) -> Type[Backend]:
        """The class by which Ray Train sets up and ends the workers."""
        return HorovodBackend

    @property
    def train_func_context(self) -> Callable[[], Any]:
        """The context in which Ray Train runs the training function, on each worker."""
        return worker.training

    def interfaces(self) -> Optional[list[str]]:
        """Choose the interfaces on which the ranks listen.

        Returns:
            The names of ``nics``, in one order on all ranks; None for all interfaces.
        """
        return None if self.nics is None else sorted(self.nics)

    def to_dict(self) -> dict[str, Any]:
        """Describe this for Ray's dashboard.

        Returns:
            Values by name.
        """
        return {
            "nics": self.interfaces(),
            "verbose": self.verbose,
            "timeout_s": self.timeout_s,
            "placement_group_timeout_s": self.placement_group_timeout_s,
        }

    def environment(self) -> dict[str, str]:
        """Pass these settings to the engine of each rank.

        Returns:
            The variables of its environment.
        """
        variables = {"HOROVOD_GLOO_TIMEOUT_SECONDS": f"{self.timeout_s:g}"}
        if self.verbose >= 2:
            variables["HOROVOD_LOG_LEVEL"] = "debug"
        return variables
