"""Communicators of mpi4py, in the library's form. mpi4py is needed only if a program passes one."""

from __future__ import annotations

import ctypes
import sys


def is_communicator(thing: object) -> bool:
    """Whether ``thing`` is a communicator of mpi4py. A program that has one has imported mpi4py."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(thing, mpi.Comm)


def no_communicator(thing: object) -> ValueError:
    """The error for a value that is neither a list of ranks nor a communicator."""
    return ValueError(
        f"Invalid type of argument comm. Expected list of rank integers or mpi4py.MPI.Comm object, got {type(thing)}."
    )


def handle(comm: object) -> bytes:
    """The communicator's MPI_Comm, whose size depends on the MPI library."""
    mpi = sys.modules["mpi4py.MPI"]
    return ctypes.string_at(mpi._addressof(comm), mpi._sizeof(mpi.Comm))
