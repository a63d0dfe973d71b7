"""One rank of mpirun that finds the others by PMIx, alone or beside mpi4py, as its argument says.

Prints what it finds in one line, "place CASE rank R of N", for scripts/schedulers.sh. If a process ends without
finalizing PMIx, mpirun's exit status is not 0.
"""

import sys

import torch

import horovod.torch as hvd


def check() -> None:
    """All ranks' numbers are summed."""
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)
    assert total.item() == hvd.size() * (hvd.size() + 1) / 2, total


def by_pmix() -> None:
    """hvd.init twice: the ranks meet by PMIx only once."""
    for _ in range(2):
        hvd.init()
        check()
        rank, size = hvd.rank(), hvd.size()
        hvd.shutdown()
    tell("by_pmix", rank, size)


def mpi_later() -> None:
    """MPI is initialised after hvd.init, and finalized before hvd is used for the last time."""
    hvd.init()
    from mpi4py import MPI

    assert MPI.COMM_WORLD.allreduce(1) == hvd.size()
    MPI.Finalize()
    check()
    tell("mpi_later", hvd.rank(), hvd.size())


def mpi_earlier() -> None:
    """MPI is initialised before hvd.init, and used after hvd.shutdown."""
    from mpi4py import MPI

    hvd.init()
    check()
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    assert MPI.COMM_WORLD.allreduce(1) == size
    tell("mpi_earlier", rank, size)


def tell(case: str, rank: int, size: int) -> None:
    """One write: several processes share the output."""
    sys.stdout.write(f"place {case} rank {rank} of {size}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    {f.__name__: f for f in (by_pmix, mpi_later, mpi_earlier)}[sys.argv[1]]()
