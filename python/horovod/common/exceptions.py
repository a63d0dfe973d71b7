"""The exceptions of Horovod's interface."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed: a rank died or shut down, the ranks disagreed about an operation, or the network broke.

    The message names the cause. Elastic training recovers from this exception.

    Example:
        >>> issubclass(hvd.HorovodInternalError, RuntimeError)
        True
    """


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts changed; ``skip_sync`` says that no state was lost, so none need be synchronised."""

    def __init__(self, skip_sync: bool) -> None:
        super().__init__()
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Text of :class:`HorovodVersionMismatchError` for framework ``name``."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}.\n"
        "             This can result in unexpected behavior including runtime errors.\n"
        "             Reinstall Horovod using `pip install --no-cache-dir` to build with the new version."
    )


class HorovodVersionMismatchError(ImportError):
    """The framework was upgraded after Horovod had been built for it. gorovod is built for none and never raises it."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
