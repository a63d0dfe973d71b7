"""The exceptions of Horovod's interface."""

from __future__ import annotations


class HorovodInternalError(RuntimeError):
    """A collective failed: a rank died or shut down, the ranks disagreed about an operation, or the network broke.

    The message names the cause. Elastic training recovers from this exception.

    Example:
        >>> issubclass(hvd.HorovodInternalError, RuntimeError)
        True
    """


class ConsistencyError(RuntimeError):
    """Ranks that should have the same tensors do not. All ranks raise it, with the same message.

    Args:
        message: names the tensors, and the ranks whose values differ from the majority's.
        odd_ranks: these ranks, by tensor; all ranks if no value has a majority.

    Example:
        >>> from horovod.common.exceptions import ConsistencyError
        >>> ConsistencyError("rank 2's weight differs from the other 3 ranks'", {"weight": [2]}).odd_ranks
        {'weight': [2]}
    """

    def __init__(self, message: str, odd_ranks: dict[str, list[int]]) -> None:
        super().__init__(message)
        self.odd_ranks = odd_ranks


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts have joined or left an elastic job, so the job must be formed anew.

    Args:
        skip_sync: whether hosts have only left. Every remaining rank still has the state then, and skips the broadcast.

    Example:
        >>> from horovod.common.exceptions import HostsUpdatedInterrupt
        >>> HostsUpdatedInterrupt(skip_sync=True).skip_sync
        True
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__()
        self.skip_sync = skip_sync


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Text of :class:`HorovodVersionMismatchError`.

    Args:
        name: the framework.
        version: the version that the program finds.
        installed_version: the version that Horovod was built for.

    Returns:
        The text.

    Example:
        >>> from horovod.common.exceptions import get_version_mismatch_message
        >>> print(get_version_mismatch_message("torch", "2.1", "2.0").splitlines()[0])
        Framework torch installed with version 2.0 but found version 2.1.
    """
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}.\n"
        "             This can result in unexpected behavior including runtime errors.\n"
        "             Reinstall Horovod using `pip install --no-cache-dir` to build with the new version."
    )


class HorovodVersionMismatchError(ImportError):
    """The framework was upgraded after Horovod had been built for it. gorovod is built for none, and never raises it.

    Args:
        name: the framework.
        version: the version that the program finds.
        installed_version: the version that Horovod was built for.

    Example:
        >>> from horovod.common.exceptions import HorovodVersionMismatchError
        >>> issubclass(HorovodVersionMismatchError, ImportError)
        True
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
