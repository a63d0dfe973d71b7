"""The process sets that exist in the library, by number."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Callable, Optional, Sequence

from horovod.common import _lib, _mpi
from horovod.common.exceptions import HorovodInternalError


class RegisteredSets:
    """Registers and removes process sets, and finds their ranks: a part of ``HorovodBasics``."""

    MPI_LIB_CTYPES: ctypes.CDLL

    HOROVOD_PROCESS_SET_ERROR_INIT = -1
    HOROVOD_PROCESS_SET_ERROR_DYNAMIC = -2
    HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET = -3
    HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET = -4
    HOROVOD_PROCESS_SET_ERROR_SHUTDOWN = -5
    HOROVOD_PROCESS_SET_ERROR_EXISTING_SET = -6

    def _add_process_set_impl(self, ranks: Sequence[int]) -> Optional[int]:
        """Register a set on all ranks and return its id, or None if a set of these ranks exists. Blocks."""
        return self._add_set(self.MPI_LIB_CTYPES.horovod_add_process_set, ranks)

    def _add_process_set_of_the_rest(self, ranks: Sequence[int]) -> Optional[int]:
        """Do the same on the ranks that are left, after :meth:`_keep_process_sets`; all make the calls in one order."""
        return self._add_set(self.MPI_LIB_CTYPES.gorovod_add_process_set_of_the_rest, ranks)

    def _keep_process_sets(self) -> None:
        """From now on, let sets go on after the end of a rank that is in none of them. Every rank calls it."""
        self._dynamic_result(self.MPI_LIB_CTYPES.gorovod_keep_process_sets(), "")

    def _add_set(self, add: Callable[[ctypes.Array, int], int], ranks: Sequence[int]) -> Optional[int]:
        array = _lib.int_array(ranks)
        result, reason = _interruptibly(lambda: add(array, len(ranks)))
        if result == self.HOROVOD_PROCESS_SET_ERROR_EXISTING_SET:
            return None
        return self._dynamic_result(result, reason)

    def _remove_process_set_impl(self, process_set_id: int) -> Optional[int]:
        """Remove a set on all ranks and return its id, or None if no set has this id. Blocks."""
        number = _lib.int32(process_set_id, "process set id")
        result, reason = _interruptibly(lambda: self.MPI_LIB_CTYPES.horovod_remove_process_set(number))
        if result == self.HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET:
            return None
        return self._dynamic_result(result, reason)

    def _dynamic_result(self, result: int, reason: str) -> int:
        if result >= 0:
            return result
        if result == self.HOROVOD_PROCESS_SET_ERROR_INIT:
            raise _lib.not_initialized()
        if result == self.HOROVOD_PROCESS_SET_ERROR_DYNAMIC:
            raise ValueError(
                reason
                or "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 or pass process_sets='dynamic' to hvd.init() to allow adding or "
                "removing process sets after initialization."
            )
        if result == self.HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET:
            raise ValueError(reason)
        raise HorovodInternalError(reason or f"the process sets cannot be changed (error {result})")

    def _process_set_rank(self, process_set_id: int) -> int:
        result = self.MPI_LIB_CTYPES.horovod_process_set_rank(_lib.int32(process_set_id, "process set id"))
        if result == self.HOROVOD_PROCESS_SET_ERROR_FOREIGN_SET:
            raise ValueError(f"Process is not part of process set {process_set_id}.")
        return self._known_set(result, process_set_id)

    def _process_set_size(self, process_set_id: int) -> int:
        number = _lib.int32(process_set_id, "process set id")
        return self._known_set(self.MPI_LIB_CTYPES.horovod_process_set_size(number), process_set_id)

    def _known_set(self, result: int, process_set_id: int) -> int:
        if result >= 0:
            return result
        if result == self.HOROVOD_PROCESS_SET_ERROR_INIT:
            raise _lib.not_initialized()
        raise ValueError(f"Unknown process set id {process_set_id}: it was never added, or it has been removed.")

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Every set's ranks by its id. Raises ValueError if not initialised."""
        while True:  # another thread may remove a set meanwhile; each removal leaves fewer sets, so the loop ends
            sets = self._read_process_sets()
            if sets is not None:
                return sets

    def _read_process_sets(self) -> Optional[dict[int, list[int]]]:
        """Every set's ranks by its id; None if a set disappeared meanwhile."""
        if not self.MPI_LIB_CTYPES.horovod_is_initialized():
            raise _lib.not_initialized()
        ids = _lib.int_array([-1] * self.MPI_LIB_CTYPES.horovod_number_of_process_sets())
        self.MPI_LIB_CTYPES.horovod_process_set_ids(ids)
        sets = {}
        for process_set_id in ids:
            size = self.MPI_LIB_CTYPES.horovod_process_set_size(process_set_id)
            ranks = _lib.int_array([-1] * max(size, 0))
            if size < 0 or self.MPI_LIB_CTYPES.horovod_process_set_ranks(process_set_id, ranks) != 0:
                return None
            sets[process_set_id] = list(ranks)
        return sets

    def _comm_process_set_id(self, comm: object) -> int:
        """The id of the set whose members are the communicator's processes. Raises ValueError if there is none."""
        if not _mpi.is_communicator(comm):
            raise _mpi.no_communicator(comm)
        number = int.from_bytes(_mpi.handle(comm), sys.byteorder)
        process_set_id = self.MPI_LIB_CTYPES.horovod_comm_process_set(ctypes.c_void_p(number))
        if process_set_id == self.HOROVOD_PROCESS_SET_ERROR_INIT:
            raise _lib.not_initialized()
        if process_set_id < 0:
            raise ValueError(
                "No process set has the processes of this MPI communicator; pass ProcessSet(comm) to "
                "hvd.init(comm=…, process_sets=…)."
            )
        return int(process_set_id)


def _interruptibly(call: Callable[[], int]) -> tuple[int, str]:
    """Call into the library in a thread, so that Ctrl-C works meanwhile. After Ctrl-C the call itself continues.

    Returns the result, and the thread's last error.
    """
    outcome: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: outcome.append((call(), _lib.last_error())), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    return outcome[0]
