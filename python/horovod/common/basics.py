"""Life cycle and topology: every front end re-exports these as module functions."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import threading
from typing import Any, Callable, Iterable, Literal, Optional, Sequence, Union, overload

from horovod.common import _last_words, _lib, _mpi, _stack, _summary
from horovod.common._registered_sets import RegisteredSets
from horovod.common.process_sets import ProcessSet, _init_process_sets, _rebind_process_sets
from horovod.common.util import is_iterable

# Functions of the front ends: init calls the first list before the job begins. shutdown, and an exit of Python without
# an error, call the second before the job ends; shutdown calls the third after it has ended.
before_init: list[Callable[[], None]] = []
before_shutdown: list[Callable[[], None]] = []
after_shutdown: list[Callable[[], None]] = []
# Further fields of metrics(), and what counts them.
more_metrics: dict[str, Callable[[], Any]] = {}


class HorovodBasics(RegisteredSets):
    """The functions of Horovod that need no tensor.

    Attributes ``Average``, ``Sum``, ``Adasum``, ``Min``, ``Max`` and ``Product`` are the numbers of the reduce
    operations. Ranks and sizes raise ValueError before :meth:`init`, after :meth:`shutdown`, and in a forked child.

    Args:
        pkg_path, args: the extension to load, in Horovod. They have no effect here, because all front ends share one
            library.

    Raises:
        ImportError: the library is missing.

    Example:
        >>> from horovod.common.basics import HorovodBasics
        >>> HorovodBasics().is_initialized()
        True
    """

    def __init__(self, pkg_path: Optional[str] = None, *args: object) -> None:
        library = _lib.load()
        self.MPI_LIB_CTYPES = library
        self.Average: int = library.horovod_reduce_op_average()
        self.Sum: int = library.horovod_reduce_op_sum()
        self.Adasum: int = library.horovod_reduce_op_adasum()
        self.Min: int = library.horovod_reduce_op_min()
        self.Max: int = library.horovod_reduce_op_max()
        self.Product: int = library.horovod_reduce_op_product()
        self._exit_hook = False

    def init(
        self,
        comm: Union[None, Iterable[int], object] = None,
        process_sets: Union[None, str, Sequence[ProcessSet]] = None,
    ) -> None:
        """Join the job, and return when all its ranks have joined. A second call does nothing.

        In an elastic job the call waits for enough processes, as long as the driver does. The process sets are then
        those of rank 0: see :class:`ProcessSet`. Ctrl-C ends the wait.

        Args:
            comm: one of three things. A communicator of mpi4py: its processes are the ranks, whoever started them.
                Several communicators: the first is the world, the others are process sets. A list of ranks of
                MPI_COMM_WORLD: without MPI it has no effect, as with Horovod's Gloo controller.
            process_sets: a list of :class:`ProcessSet`, the same on all ranks, or ``"dynamic"``, which allows
                :func:`add_process_set` later.

        Raises:
            ValueError: the ranks do not find one another within ``HOROVOD_GLOO_TIMEOUT_SECONDS`` (30 s), or an argument
                is wrong. The text says why.
            NotImplementedError: a process set is defined by a communicator, but ``comm`` is none.
            SystemExit: with 0, if an elastic job has no place for this process any more.

        Example:
            >>> hvd.init()
            >>> hvd.is_initialized()
            True
        """
        ranks, comms = self._split_comm(comm)
        if isinstance(process_sets, str):
            if process_sets.lower() != "dynamic":
                raise ValueError(f'process_sets must be a list of ProcessSet or "dynamic", not {process_sets!r}')
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
            process_sets = None
        process_sets = list(process_sets or ())
        sets_by_comm = [process_set.mpi_comm for process_set in process_sets if process_set.mpi_comm is not None]
        if sets_by_comm and not comms:
            raise NotImplementedError(
                "Horovod process sets defined by MPI communicators need init(comm=…) with a communicator."
            )

        if not self.is_initialized():
            for prepare in before_init:
                prepare()
            sets_by_ranks = [process_set.ranks or [] for process_set in process_sets if process_set.mpi_comm is None]
            reason = _init_interruptibly(ranks, comms and comms + sets_by_comm, sets_by_ranks)
            if reason is not None and self.MPI_LIB_CTYPES.gorovod_elastic() == _lib.ELASTIC_DISMISSED:
                print(f"horovod: {reason}", file=sys.stderr)
                raise SystemExit(0)
            if reason is not None:
                raise ValueError(f"Horovod initialization failed. {reason or 'The log tells more.'}")
            _stack.offer(self.MPI_LIB_CTYPES)
        if not self._exit_hook:
            atexit.register(self._leave)
            _last_words.install()
            self._exit_hook = True

        if self.MPI_LIB_CTYPES.gorovod_elastic() != _lib.NOT_ELASTIC:
            _rebind_process_sets(self, process_sets)
        else:
            _init_process_sets(self, process_sets)

    def _split_comm(self, comm: object) -> tuple[list[int], list[object]]:
        """Ranks, or communicators; at least one of the two lists is empty."""
        things: list = list(comm) if is_iterable(comm) else [] if comm is None else [comm]  # type: ignore[call-overload]
        if not any(_like_a_communicator(thing) for thing in things):
            if comm is not None and not is_iterable(comm):
                raise _mpi.no_communicator(comm)
            for rank in things:
                if not isinstance(rank, int):
                    raise ValueError(f"init(comm=…) takes a list of ranks, but {rank!r} is not an int")
            return things, []
        if not self.mpi_built():
            raise ValueError(
                "Horovod was not built with MPI (HOROVOD_WITH_MPI=1), or finds no MPI library, so it cannot be "
                "initialized with an MPI communicator. Call init() without one; horovodrun and mpirun both work."
            )
        for thing in things:
            if not _mpi.is_communicator(thing):
                raise _mpi.no_communicator(thing)
        return [], things

    def shutdown(self) -> None:
        """Leave the job. Operations that have not run yet fail on every rank. You may call :meth:`init` again.

        Handles that you did not synchronise become invalid, and the next handle is 1 again.

        Example:
            >>> hvd.shutdown()
            >>> hvd.is_initialized()
            False
            >>> hvd.init()
        """
        for settle in before_shutdown:
            settle()
        self.MPI_LIB_CTYPES.horovod_shutdown()
        for forget in after_shutdown:  # from here on the engine uses no tensor
            forget()

    def _leave(self) -> None:
        """Leave the job as Python exits. After an uncaught exception nothing is worth waiting for."""
        try:
            if self.is_initialized() and not hasattr(sys, "last_value"):
                for settle in before_shutdown:
                    settle()
        finally:
            self.MPI_LIB_CTYPES.horovod_shutdown()

    def is_initialized(self) -> bool:
        """Tell whether this process has called :meth:`init` and not :meth:`shutdown` since.

        Returns:
            Whether it has.

        Example:
            >>> hvd.is_initialized()
            True
        """
        return bool(self.MPI_LIB_CTYPES.horovod_is_initialized())

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Let rank 0 write a trace from now on. HOROVOD_TIMELINE must have been set at :meth:`init`.

        Args:
            file_path: the file to write. If it contains ``{rank}``, each rank writes a file with its rank in that
                place, for ``gorovod trace merge``.
            mark_cycles: mark each negotiated batch in it.

        Raises:
            ValueError: Horovod is not initialised, or HOROVOD_TIMELINE was not set.
            OSError: the file cannot be written.

        Example:
            >>> hvd.start_timeline("timeline.json")  # without HOROVOD_TIMELINE=DYNAMIC
            Traceback (most recent call last):
            ValueError: Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline tracing...
        """
        result = self.MPI_LIB_CTYPES.horovod_start_timeline(os.fsencode(file_path), mark_cycles)
        if result == -1:
            raise _lib.not_initialized()
        if result == -2:
            raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline tracing. " + _lib.last_error())
        if result < 0:
            raise OSError(_lib.last_error())

    def stop_timeline(self) -> None:
        """End the trace that :meth:`start_timeline`, or HOROVOD_TIMELINE, began.

        Raises:
            ValueError: Horovod is not initialised.
            OSError: the file could not be completed.

        Example:
            >>> hvd.stop_timeline()
        """
        result = self.MPI_LIB_CTYPES.horovod_stop_timeline()
        if result == -1:
            raise _lib.not_initialized()
        if result < 0:
            raise OSError(_lib.last_error())

    def size(self) -> int:
        """Number of ranks.

        Returns:
            The number.

        Raises:
            ValueError: Horovod is not initialised.

        Example:
            >>> hvd.size()  # of a program that was started without horovodrun
            1
        """
        return _initialized(self.MPI_LIB_CTYPES.horovod_size())

    def local_size(self) -> int:
        """Number of ranks on this host.

        Returns:
            The number.

        Raises:
            ValueError: Horovod is not initialised.

        Example:
            >>> hvd.local_size()
            1
        """
        return _initialized(self.MPI_LIB_CTYPES.horovod_local_size())

    def cross_size(self) -> int:
        """Number of hosts that have a rank of this :meth:`local_rank`.

        Returns:
            The number.

        Raises:
            ValueError: Horovod is not initialised.

        Example:
            >>> hvd.cross_size()
            1
        """
        return _initialized(self.MPI_LIB_CTYPES.horovod_cross_size())

    def rank(self) -> int:
        """This process's number among all ranks.

        Returns:
            The number, from 0 to ``size() - 1``.

        Raises:
            ValueError: Horovod is not initialised.

        Example:
            >>> if hvd.rank() == 0:
            ...     print("only one rank prints")
            only one rank prints
        """
        return _initialized(self.MPI_LIB_CTYPES.horovod_rank())

    def local_rank(self) -> int:
        """This process's number on its host: the number of its GPU, for instance.

        Returns:
            The number, from 0 to ``local_size() - 1``.

        Raises:
            ValueError: Horovod is not initialised.

        Example:
            >>> hvd.local_rank()
            0
        """
        return _initialized(self.MPI_LIB_CTYPES.horovod_local_rank())

    def cross_rank(self) -> int:
        """This host's number, among those that have a rank of this :meth:`local_rank`.

        Returns:
            The number, from 0 to ``cross_size() - 1``.

        Raises:
            ValueError: Horovod is not initialised.

        Example:
            >>> hvd.cross_rank()
            0
        """
        return _initialized(self.MPI_LIB_CTYPES.horovod_cross_rank())

    def is_homogeneous(self) -> bool:
        """Tell whether every host has the same number of ranks.

        Returns:
            Whether it has.

        Example:
            >>> hvd.is_homogeneous()
            True
        """
        return bool(self.MPI_LIB_CTYPES.horovod_is_homogeneous())

    @overload
    def metrics(self, short: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    def metrics(self, short: Literal[True]) -> str: ...

    def metrics(self, short: bool = False) -> dict[str, Any] | str:
        """The counts of this process since :meth:`init`: collectives by size, with their times, and its waiting.

        All counts only grow until :meth:`shutdown`. The call sends nothing, and may run on any thread. The page
        "Metrics" explains each field. ``horovodrun --metrics-port`` shows the figures of all ranks.

        Args:
            short: return one sentence for people instead, to print now and then: the number of collectives and steps
                and their times, whom this rank has waited for most, and what is pending.

        Returns:
            A dictionary: ``collectives``, ``tensors``, ``wire``, ``tables``, ``negotiation``, ``steps``, ``samples``,
            ``wait_seconds``, ``waited_for``, ``cache``, ``fusion``, ``early``, ``hosts``, ``nans``, ``pending``,
            ``oldest_pending_seconds``, ``bucket_bounds``, ``rank`` and ``size``; and ``sharded_optimizers``, if there
            are any. With ``short`` a text.

        Raises:
            ValueError: before :meth:`init`, after :meth:`shutdown`, and in a forked child.

        Example:
            >>> hvd.metrics()["pending"]
            0
            >>> hvd.metrics(short=True).split(":")[0]
            'rank 0 of 1'
        """
        text = self.MPI_LIB_CTYPES.gorovod_metrics()
        if not text:
            raise _lib.not_initialized()
        try:
            figures: dict[str, Any] = json.loads(ctypes.string_at(text))
        finally:
            self.MPI_LIB_CTYPES.gorovod_free(text)
        figures.update((name, count()) for name, count in more_metrics.items())
        return _summary.sentence(figures) if short else figures

    def count_samples(self, samples: int) -> None:
        """Count samples that this process has worked through, so that a dashboard can show samples a second.

        The count is in :meth:`metrics`, and in what ``horovodrun --dashboard``, ``--metrics-port`` and ``gorovod top``
        show. It sends nothing, and may be called on any thread, at best once in each step.

        Args:
            samples: how many, such as the size of a batch.

        Raises:
            ValueError: before :meth:`init`, after :meth:`shutdown`, in a forked child, and for a number below 0.

        Example:
            >>> hvd.count_samples(64)
            >>> hvd.metrics()["samples"]
            64
        """
        if samples < 0:
            raise ValueError(f"samples must not be negative, but is {samples}")
        if self.MPI_LIB_CTYPES.gorovod_count_samples(int(samples)) < 0:
            raise _lib.not_initialized()

    def mpi_threads_supported(self) -> bool:
        """Tell whether the program may call MPI itself on any thread.

        Returns:
            Whether it may.

        Raises:
            ValueError: MPI is not in use.

        Example:
            >>> hvd.mpi_enabled() and hvd.mpi_threads_supported()
            False
        """
        if not self.mpi_enabled():
            raise ValueError("Horovod MPI is not enabled; please make sure it's installed and enabled.")
        return bool(_initialized(self.MPI_LIB_CTYPES.horovod_mpi_threads_supported()))

    def mpi_enabled(self) -> bool:
        """Tell whether the ranks have found one another over MPI, or MPI carries the data of this job.

        Returns:
            Whether MPI is in use.

        Example:
            >>> hvd.mpi_enabled()
            False
        """
        return bool(self.MPI_LIB_CTYPES.horovod_mpi_enabled())

    def mpi_built(self) -> bool:
        """Tell whether MPI can be used: a library of MPI is installed, and has been loaded by this call.

        Returns:
            Whether it can.

        Example:
            >>> hvd.mpi_built() in (True, False)
            True
        """
        return bool(self.MPI_LIB_CTYPES.horovod_mpi_built())

    def gloo_enabled(self) -> bool:
        """Tell whether Horovod's MPI-free mode is in use, which stands for gorovod's own transports.

        Returns:
            Whether it is.

        Example:
            >>> hvd.gloo_enabled()
            True
        """
        return bool(self.MPI_LIB_CTYPES.horovod_gloo_enabled())

    def gloo_built(self) -> bool:
        """Tell whether Horovod's MPI-free mode can be used, which stands for gorovod's own transports.

        Returns:
            Whether it can.

        Example:
            >>> hvd.gloo_built()
            True
        """
        return bool(self.MPI_LIB_CTYPES.horovod_gloo_built())

    def nccl_built(self) -> int:
        """Version code of the NCCL of this process, such as 21805 for 2.18.5.

        Returns:
            The code, or 0 if collectives cannot use NCCL: there is no driver, no NCCL that fits it, or ``GOROVOD_GPU``
                is ``staged`` or ``off``. Also if a library does not answer within ``HOROVOD_GLOO_TIMEOUT_SECONDS``;
                then the log says which call hangs. This does not start CUDA.

        Example:
            >>> hvd.nccl_built()
            0
        """
        version = -1
        while version < 0:  # each time Python can raise KeyboardInterrupt
            version = self.MPI_LIB_CTYPES.gorovod_await_nccl_built(100)
        return int(version)

    def ddl_built(self) -> bool:
        """Tell whether IBM DDL can be used.

        Returns:
            Whether it can.

        Example:
            >>> hvd.ddl_built()
            False
        """
        return bool(self.MPI_LIB_CTYPES.horovod_ddl_built())

    def ccl_built(self) -> bool:
        """Tell whether Intel oneCCL can be used.

        Returns:
            Whether it can.

        Example:
            >>> hvd.ccl_built()
            False
        """
        return bool(self.MPI_LIB_CTYPES.horovod_ccl_built())

    def cuda_built(self) -> bool:
        """Tell whether collectives run in CUDA memory; otherwise tensors go through the host.

        Returns:
            Whether they do.

        Example:
            >>> hvd.cuda_built()
            False
        """
        return self.nccl_built() != 0

    def rocm_built(self) -> bool:
        """Tell whether collectives run in ROCm memory.

        Returns:
            Whether they do.

        Example:
            >>> hvd.rocm_built()
            False
        """
        return bool(self.MPI_LIB_CTYPES.horovod_rocm_built())


def _like_a_communicator(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] == "mpi4py"


def _initialized(value: int) -> int:
    if value == -1:
        raise _lib.not_initialized()
    return value


def _init_interruptibly(
    world: Sequence[int], comms: Sequence[object], process_sets: Sequence[Sequence[int]]
) -> Optional[str]:
    """Call ``horovod_init`` in a thread, so that Ctrl-C works meanwhile. Returns None on success, else the reason.

    With ``comms`` it is ``horovod_init_multi_comm``: the first is the world, the others are process sets.
    """
    library = _lib.load()
    outcome: list[Optional[str]] = []
    # Guards outcome and abandoned: the thread may succeed while the caller stops waiting.
    decision = threading.Lock()
    abandoned = False

    ranks = _lib.int_array([rank for process_set in process_sets for rank in process_set])
    sizes = _lib.int_array([len(process_set) for process_set in process_sets])
    handles = b"".join(_mpi.handle(comm) for comm in comms)

    def call() -> None:
        if comms:
            ok = library.horovod_init_multi_comm(handles, len(comms), ranks, sizes, len(process_sets))
        else:
            ok = library.horovod_init(_lib.int_array(world), len(world), ranks, sizes, len(process_sets))
        reason = None if ok else _lib.last_error()
        with decision:
            outcome.append(reason)
            leave = ok and abandoned
        if leave:
            library.horovod_shutdown()

    thread = threading.Thread(target=call, name="horovod_init", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        # The caller was interrupted, so the process must not remain a rank: leave the job now, or when init ends.
        with decision:
            abandoned = True
            leave = outcome == [None]
        if leave:
            library.horovod_shutdown()
        raise
    return outcome[0] if outcome else "The call of horovod_init failed."
