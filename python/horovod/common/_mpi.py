"""Communicators of mpi4py, as the library takes them. mpi4py is needed only where a program gives one."""

from __future__ import annotations

import ctypes
import sys


def is_communicator(thing: object) -> bool:
    """Whether ``thing`` is a communicator of mpi4py; without importing that, since whoever made one has."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(thing, mpi.Comm)


def no_communicator(thing: object) -> ValueError:
    """The error for what is neither ranks nor a communicator."""
    return ValueError(
        f"Invalid type of argument comm. Expected list of rank integers or mpi4py.MPI.Comm object, got {type(thing)}."
    )


def handle(comm: object) -> bytes:
    """The communicator's MPI_Comm, whose size is the MPI library's own affair."""
    mpi = sys.modules["mpi4py.MPI"]
    return ctypes.string_at(mpi._addressof(comm), mpi._sizeof(mpi.Comm))
