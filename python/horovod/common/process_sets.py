"""Process sets: subsets of the ranks, which run collectives among themselves."""

from __future__ import annotations

import weakref
from typing import Iterable, Optional, Protocol, Sequence, Union

from horovod.common import _lib, _mpi
from horovod.common.util import is_iterable


class _Basics(Protocol):
    """The methods of :class:`horovod.common.basics.HorovodBasics` that the sets use."""

    def rank(self) -> int: ...

    def _add_process_set_impl(self, ranks: Sequence[int]) -> Optional[int]: ...

    def _remove_process_set_impl(self, process_set_id: int) -> Optional[int]: ...

    def _process_set_rank(self, process_set_id: int) -> int: ...

    def _process_set_size(self, process_set_id: int) -> int: ...

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]: ...

    def _comm_process_set_id(self, comm: object) -> int: ...


_basics: Optional[_Basics] = None


def _setup(basics: _Basics) -> None:
    """Make ``basics`` the object that the sets use."""
    global _basics
    _basics = basics


def _bound() -> _Basics:
    if _basics is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _basics


class ProcessSet:
    """A set of ranks. Ranks inside it count from 0 in ascending order.

    :func:`init` or :func:`add_process_set` gives it a ``process_set_id``; it is usable from then on. ``ranks`` is
    sorted. The n-th operation of a kind without a name on one rank meets the n-th one on the other ranks of the set.

    In an elastic job a set keeps those of its ranks that exist when the job is formed anew: ``ranks`` are those below
    the size. If none exists, the set has no id until the job has grown. A process that joins later adds the sets that
    the others have, without waiting for them.

    Args:
        ranks_or_comm: an iterable of ints. Or a communicator of mpi4py, for ``init(comm=…, process_sets=…)`` with a
            communicator: each rank gives one that it is in, so that all groups of a split become sets.

    Raises:
        ValueError: a rank is no int, or the argument is neither.

    Example:
        >>> even = hvd.ProcessSet(range(0, 4, 2))
        >>> print(even)
        ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)
        >>> hvd.global_process_set.size(), hvd.global_process_set.rank(), hvd.global_process_set.included()
        (1, 0, True)
    """

    process_set_id: Optional[int] = None
    ranks: Optional[list[int]] = None
    mpi_comm: Optional[object] = None

    def __init__(self, ranks_or_comm: Union[Iterable[int], object]) -> None:
        if _mpi.is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            return
        if not is_iterable(ranks_or_comm):
            raise ValueError(
                f"A process set needs a list of ranks, or a communicator of mpi4py, but got {type(ranks_or_comm)}."
            )
        ranks: list[int] = list(ranks_or_comm)  # type: ignore[arg-type]
        for rank in ranks:
            if not isinstance(rank, int):
                raise ValueError(f"ProcessSet should be initialized with a list of int ranks, but got {rank!r}")
            _lib.int32(rank, "rank")
        self.ranks = sorted(ranks)
        self._places = list(self.ranks)

    def size(self) -> Optional[int]:
        """Number of ranks in the set.

        Returns:
            The number; None if the set is not initialised.
        """
        return None if self.process_set_id is None else _bound()._process_set_size(self.process_set_id)

    def rank(self) -> Optional[int]:
        """This process's rank in the set.

        Returns:
            The rank; None if the set is not initialised.

        Raises:
            ValueError: this process is no member.
        """
        return None if self.process_set_id is None else _bound()._process_set_rank(self.process_set_id)

    def included(self) -> Optional[bool]:
        """Tell whether this process is a member.

        Returns:
            Whether it is; None if the set has no list of ranks.
        """
        return None if self.ranks is None else _bound().rank() in self.ranks

    def _forget(self) -> None:
        self.process_set_id = None

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def _init_process_sets(basics: _Basics, process_sets: Sequence[ProcessSet]) -> None:
    """After init: fill in the ranks of the world, and the ids of ``process_sets``."""
    known = basics._get_process_set_ids_and_ranks()
    world = global_process_set.ranks = known.pop(0)
    numbered = list(enumerate(process_sets))
    # Communicators first: two sets of equal ranks are one in the library, and the communicator finds it.
    for number, process_set in sorted(numbered, key=lambda pair: pair[1].mpi_comm is None):
        process_set_id: Optional[int]
        if process_set.mpi_comm is not None:
            process_set_id = basics._comm_process_set_id(process_set.mpi_comm)
        else:
            ranks = process_set.ranks or world  # an empty list is one more set of all ranks
            process_set_id = next((i for i in sorted(known) if known[i] == ranks), None)
        if process_set_id not in known:
            raise ValueError(
                f"Process set number {number} of init is a duplicate, or was not there when Horovod was initialized: "
                f"{process_set}"
            )
        process_set.ranks = known.pop(process_set_id)
        process_set.process_set_id = process_set_id


# The sets of this process. After each reset of an elastic job, _rebind_process_sets finds their new ids.
_added: weakref.WeakSet[ProcessSet] = weakref.WeakSet()


def _present(places: Sequence[int], world: list[int]) -> list[int]:
    """Those of ``places`` that exist; an empty list means all."""
    return [rank for rank in places if rank < len(world)] if places else world


def _rebind_process_sets(basics: _Basics, process_sets: Sequence[ProcessSet]) -> None:
    """After init in an elastic job: find the sets that exist now."""
    known = basics._get_process_set_ids_and_ranks()
    world = global_process_set.ranks = known.pop(0)
    _added.update(process_sets)
    for process_set in _added:
        process_set.ranks = _present(process_set._places, world)
        ids = [i for i in sorted(known) if known[i] == process_set.ranks]
        process_set.process_set_id = ids[0] if ids else 0 if process_set.ranks == world else None


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Add a set after init. All ranks must call this, members or not, in the same order. Blocks until they have.

    Args:
        process_set: the set, or its ranks.

    Returns:
        The set, with an id.

    Raises:
        ValueError: the set exists already, a rank does not exist, the ranks disagree, or sets are not dynamic.
        NotImplementedError: the set is defined by a communicator of MPI.
        HorovodInternalError: a rank dies or leaves meanwhile.

    Example:
        >>> hvd.shutdown()
        >>> hvd.init(process_sets="dynamic")
        >>> hvd.add_process_set([0])  # the only rank here, which the global set has
        Traceback (most recent call last):
        ValueError: Attempted to add a duplicate process set: ...
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise NotImplementedError(
            "Dynamically adding process sets defined by an MPI communicator is not implemented. "
            "Pass the set to hvd.init(comm=…, process_sets=…), or give its ranks."
        )
    process_set_id = _bound()._add_process_set_impl(process_set._places)
    if process_set_id is None:
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
    process_set.ranks = _present(process_set._places, list(global_process_set.ranks or ()))
    process_set.process_set_id = process_set_id
    _added.add(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set. All ranks must call this, in the same order. Blocks until they have.

    Args:
        process_set: the set.

    Returns:
        Whether it existed; False for the global set, and for a set that is not initialised.

    Raises:
        ValueError: as :func:`add_process_set`.
        HorovodInternalError: a rank dies or leaves meanwhile. The set still exists then.

    Example:
        >>> hvd.remove_process_set(hvd.global_process_set)
        False
    """
    process_set_id = process_set.process_set_id
    if not process_set_id:
        return False
    was_there = _bound()._remove_process_set_impl(process_set_id) is not None
    process_set._forget()
    _added.discard(process_set)
    return was_there
