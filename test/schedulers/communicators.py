"""One process of MPI, with mpi4py: gives hvd.init communicators, in the way that its argument names.

Prints what it finds in one line, "place CASE rank R of N sets …", for scripts/schedulers.sh.
"""

import os
import sys

import mpi4py
import numpy as np

CASE = sys.argv[1]
if CASE == "single":
    mpi4py.rc.thread_level = "single"
if CASE != "after":
    from mpi4py import MPI  # before torch, which may be linked with another MPI
import torch  # noqa: E402

import horovod.torch as hvd  # noqa: E402
from horovod.torch.mpi_ops import _basics  # noqa: E402


def say(what: str) -> None:
    """One write: several processes share the output."""
    sys.stdout.write(f"place {what}\n")
    sys.stdout.flush()


def tell(case: str, more: str = "") -> None:
    total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum)
    assert total.item() == hvd.size() * (hvd.size() + 1) / 2, total
    say(f"{case} rank {hvd.rank()} of {hvd.size()}{more}")


def members() -> str:
    """All process sets, with their ids and ranks."""
    found = []
    for set_id, ranks in sorted(_basics._get_process_set_ids_and_ranks().items()):
        found.append(f"{set_id}={'+'.join(map(str, ranks))}")
    return " sets " + " ".join(found)


def set_sum(process_set: "hvd.ProcessSet") -> str:
    """The sum of the members' ranks, by the process set that includes this process."""
    return f" sum {int(hvd.allreduce(torch.tensor([float(hvd.rank())]), op=hvd.Sum, process_set=process_set).item())}"


def world() -> None:
    """MPI is initialised by mpi4py, before; the program goes on using it, and finalizes it as it exits."""
    hvd.init(comm=MPI.COMM_WORLD)
    assert hvd.mpi_enabled() and hvd.mpi_built()
    assert hvd.mpi_threads_supported() == (MPI.Query_thread() == MPI.THREAD_MULTIPLE)
    assert MPI.COMM_WORLD.allreduce(1) == hvd.size()
    assert hvd.rank() == MPI.COMM_WORLD.rank
    tell("world")


def after() -> None:
    """MPI is initialised by hvd.init, and finalized as the process exits; mpi4py comes later and uses it."""
    os.environ["HOROVOD_CONTROLLER"] = "mpi"
    hvd.init()
    from mpi4py import MPI

    assert MPI.Is_initialized()
    ours = np.array([hvd.rank()], dtype="i8")
    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, ours)
    assert ours[0] == hvd.size() * (hvd.size() - 1) // 2
    tell("after")
    hvd.shutdown()
    MPI.COMM_WORLD.barrier()  # MPI is the process's until it ends


def again() -> None:
    """hvd.init after hvd.shutdown, with another communicator."""
    hvd.init(comm=MPI.COMM_WORLD)
    hvd.shutdown()
    backwards = MPI.COMM_WORLD.Split(0, -MPI.COMM_WORLD.rank)
    hvd.init(comm=backwards)
    assert hvd.rank() == backwards.rank
    backwards.Free()  # hvd has a duplicate
    tell("again", f" was {MPI.COMM_WORLD.rank}")


def parts() -> None:
    """Each half of MPI's world is a world of its own."""
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank)
    hvd.init(comm=half)
    assert (hvd.rank(), hvd.size()) == (half.rank, half.size)
    tell("parts", f" was {MPI.COMM_WORLD.rank}")


def several() -> None:
    """A list of communicators: the first is the world, the others are process sets."""
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank)
    hvd.init(comm=[MPI.COMM_WORLD, half])
    tell("several", members())


def sets() -> None:
    """Process sets that are given by communicators, beside one that is given by ranks."""
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank)
    by_comm, by_ranks = hvd.ProcessSet(half), hvd.ProcessSet([0, 1])
    hvd.init(comm=MPI.COMM_WORLD, process_sets=[by_comm, by_ranks])
    assert by_comm.included() and by_comm.size() == half.size and by_comm.rank() == half.rank
    tell("sets", members() + set_sum(by_comm))


def duplicates() -> None:
    """A set that exists already is refused, whether communicators or ranks tell it; one error for each list."""

    def half() -> "hvd.ProcessSet":
        return hvd.ProcessSet(MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank))

    mine = [MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank % 2 + 2]
    of_all = [hvd.ProcessSet([0, 2]), hvd.ProcessSet([1, 3])]
    refused = []
    for process_sets in ([hvd.ProcessSet(MPI.COMM_WORLD.Dup())], [half(), half()], [*of_all, half()]):
        try:
            hvd.init(comm=MPI.COMM_WORLD, process_sets=process_sets)
        except ValueError as e:
            refused.append(str(e).partition(" of init is a duplicate")[0].removeprefix("Process set number "))
        hvd.shutdown()
    assert refused[2] == ("0" if mine == [0, 2] else "1"), refused
    say(f"duplicates {refused[0]} {refused[1]} refused")


def exits() -> None:
    """The program finalizes MPI itself, and ends without hvd.shutdown: nothing aborts, and the exit code is 0."""
    hvd.init(comm=MPI.COMM_WORLD)
    tell("exits")
    MPI.Finalize()


def single() -> None:
    """MPI for one thread only is refused, with advice."""
    try:
        hvd.init(comm=MPI.COMM_WORLD)
    except ValueError as e:
        assert "MPI_THREAD_SERIALIZED" in str(e), e
        say("single refused")


def stranger() -> None:
    """A communicator with processes that are not in the first is refused."""
    half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, MPI.COMM_WORLD.rank)
    try:
        hvd.init(comm=[half, MPI.COMM_WORLD])
    except ValueError as e:
        assert "not in the first communicator" in str(e), e
        say("stranger refused")


if __name__ == "__main__":
    cases = (world, after, again, parts, several, sets, duplicates, exits, single, stranger)
    {f.__name__: f for f in cases}[CASE]()
