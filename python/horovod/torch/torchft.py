"""torchft over gorovod: process groups that a ``torchft.Manager`` makes anew whenever its replicas change.

    from horovod.torch.torchft import ProcessGroupGorovod
    from torchft import Manager

    manager = Manager(pg=ProcessGroupGorovod(), ...)

A process has one engine. So it has one :class:`ProcessGroupGorovod` at a time, whose other ranks are other processes,
and it uses neither ``hvd.init()`` nor the backend ``gorovod`` of ``torch.distributed`` as well. If that does not fit,
use :class:`ProcessGroupBabyGorovod`, whose engine has its own process. Start the program by the launcher of torchft's
replicas, such as torchrun, and not by horovodrun, whose number of ranks is fixed.

``docs/torch_distributed.md`` has more. The examples run if torchft is installed.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Union

import torch.distributed as dist

try:
    from torchft import process_group as _torchft
except ImportError as e:
    raise ImportError(f"horovod.torch.torchft needs torchft 0.2 or later (pip install torchft): {e}") from e

import horovod.torch as hvd
from horovod.torch.distributed import ProcessGroup, _join, _number

__all__ = ["ProcessGroupBabyGorovod", "ProcessGroupGorovod"]

# A child process imports PyTorch first, and on a busy machine that alone takes tens of seconds.
_CHILD_START_S = 120.0


def _open(store: dist.Store, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    """Start the engine among the ranks that share this store, in place of an earlier one, and make their group."""
    if os.environ.get("HOROVOD_SIZE"):
        raise RuntimeError(
            "horovodrun has started this process, so its rank is fixed; torchft's replicas change: start the program "
            "with torchrun, or use horovodrun --min-np and horovod.torch.elastic"
        )
    hvd.shutdown()
    _join.start(store, rank, size, timeout)
    return ProcessGroup(list(range(size)), rank, _number(store, rank), timeout)


class ProcessGroupGorovod(_torchft.ProcessGroupWrapper):
    """A process group for torchft whose collectives run on gorovod's engine, in this process.

    Each ``configure`` ends the engine and starts it again among the ranks that share the store's address. If a rank
    leaves, dies, or is configured anew, the operations of all others end, with the rank's name in the error.

    Args:
        timeout: for ``configure``, and for each operation.

    Raises:
        RuntimeError: from ``configure``, if horovodrun started the process, or the ranks do not meet in time.

    Example:
        >>> store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        >>> group = ProcessGroupGorovod()
        >>> group.configure(f"localhost:{store.port}/quorum/1", "replica", 0, 1)
        >>> x = torch.tensor([1.0, 2.0])
        >>> group.allreduce([x], dist.ReduceOp.SUM).wait()
        True
        >>> group.shutdown()
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        super().__init__(timeout)

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> ProcessGroup:
        return _open(store, rank, world_size, self._timeout)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """``torchft-gorovod``."""
        return "torchft-gorovod"

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out of later operations, and of the next ``configure``."""
        super().set_timeout(timeout)
        if isinstance(self._pg, ProcessGroup):
            self._pg.set_timeout(timeout)

    def abort(self, errored: bool = True) -> None:
        """End the engine: operations under way fail, here and on the other ranks."""
        super().abort(errored)
        hvd.shutdown()

    def shutdown(self) -> None:
        """As :meth:`abort`, for the end of the program. It logs nothing."""
        super().shutdown()
        hvd.shutdown()


class ProcessGroupBabyGorovod(_torchft.ProcessGroupBaby):
    """As :class:`ProcessGroupGorovod`, with the engine in a child process: a program may have several.

    Tensors are moved to shared memory, which costs a copy the first time.

    Args:
        timeout: for waiting; in seconds, if it is a number. ``configure`` starts a process that imports PyTorch, so it
            waits for at least 120 seconds.

    Raises:
        TimeoutError: from ``configure``, if the ranks' processes do not meet in time.

    Example:
        >>> group = ProcessGroupBabyGorovod(timeout=30.0)
        >>> group.getBackendName()
        'torchft-baby-gorovod'
    """

    _timeout: float

    def __init__(self, timeout: Union[float, timedelta] = 60.0) -> None:
        super().__init__(timeout)

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, *args: Any, **kwargs: Any
    ) -> None:
        """Start a process in place of the one before. Its engine meets those of the ranks that share the store."""
        waiting = self._timeout
        self._timeout = max(waiting, _CHILD_START_S)
        try:
            super().configure(store_addr, replica_id, rank, world_size, *args, **kwargs)
        except TimeoutError as e:
            raise TimeoutError(
                f"rank {rank} of {world_size}: the ranks' processes have not met at {store_addr} within "
                f"{self._timeout:g} s: see what the other ranks say, and give a longer timeout if they are only slow"
            ) from e
        finally:
            self._timeout = waiting

    @classmethod
    def _create_pg(cls, store: dist.Store, rank: int, world_size: int) -> Any:
        return _open(store, rank, world_size, timedelta(seconds=_CHILD_START_S))

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """``torchft-baby-gorovod``."""
        return "torchft-baby-gorovod"
