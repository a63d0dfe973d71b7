"""Training that survives errors and changes of hosts: state that can be rolled back, and the loop around it.

A training function runs inside :func:`run_fn`. It works on a :class:`State`, which it commits now and then. After a
:class:`HorovodInternalError` the state is restored to the last commit; after a :class:`HostsUpdatedInterrupt` it stays
as it is. Then the process joins the job anew, all ranks get the state of rank 0, and the function is called again. It
must be able to continue from any committed state.

Under ``horovodrun --min-np`` or ``--host-discovery-script``, the job then consists of the remaining processes and of
new ones. Commits are numbered, and a process with the newest commit becomes rank 0. With ``GOROVOD_CHECKPOINT_DIR``
rank 0 also writes commits to a disk, and a job that is started again continues from these.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import queue
import sys
from typing import Any, Callable, Iterable

from horovod.common import _held, _lib
from horovod.common._committed_tables import CommittedTables, StateWithRows
from horovod.common._host_updates import HostUpdateResult, WorkerNotificationManager
from horovod.common._tables import Table
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

notification_manager = WorkerNotificationManager()


class State:
    """The values that a training function changes, and that must not be lost.

    A derived class has :meth:`save`, :meth:`restore` and :meth:`sync`. The front ends have such classes, for instance
    ``horovod.torch.elastic.TorchState``.

    Args:
        bcast_object: a function of one value. It returns rank 0's value on every rank, as ``hvd.broadcast_object``
            does.
        get_rank: ``hvd.rank``.

    Example:
        >>> from horovod.common.elastic import State
        >>> class Counter(State):
        ...     value = saved = 0
        ...     def save(self):
        ...         self.saved = self.value
        ...     def restore(self):
        ...         self.value = self.saved
        ...     def sync(self):
        ...         self.value = self.saved = self._bcast_object(self.value)
        >>> counter = Counter(bcast_object=lambda value: value, get_rank=hvd.rank)
        >>> counter.value = 1
        >>> counter.commit()
        >>> counter.value = 2
        >>> counter.restore()
        >>> counter.value
        1
    """

    _commits = -1  # number of the last commit, the same on all ranks

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._last_updated_timestamp = 0
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._rows = CommittedTables()

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Also call these functions after each reset: to scale the learning rate by the new size, for example.

        Args:
            callbacks: functions without arguments.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Adapt to the new job, then call the registered callbacks. :func:`run_fn` calls this before :meth:`sync`."""
        self._take_messages()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: int, update_res: int) -> None:
        """Note a change of the hosts for :meth:`check_host_updates`.

        A thread calls this on every rank as soon as the launcher has told this process. A state of your own may
        override it, for example to commit early. The override must call this method, and must not block.

        Args:
            timestamp: a number that grows with each change.
            update_res: a ``HostUpdateResult``: what has changed.
        """
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """:meth:`save`, then :meth:`check_host_updates`. Each call costs both, so do not call it for every batch.

        With ``GOROVOD_CHECKPOINT_DIR`` rank 0 also writes every ``GOROVOD_CHECKPOINT_EVERY``-th commit to the disk.
        If the disk is full, or the directory has worked before, it warns instead of raising OSError.

        Raises:
            HostsUpdatedInterrupt: on all ranks, if hosts have changed.
            HorovodInternalError: the job has failed. Nothing is saved if a GPU may not have done an operation.
            OSError: on rank 0, if it cannot write its first commit into the directory. On all ranks, if the rows of a
                sparse table cannot be saved: the last commit is on the disk then.
        """
        _lib.settle()
        self._rows.commit(self._sparse_tables(), self._commits + 1)
        self.save()
        self._rows.remember()
        self._commits += 1
        _lib.load().gorovod_elastic_committed(self._commits)
        self._write_checkpoint(final=False)
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Ask rank 0 whether hosts have changed. All ranks call this. Blocks until they have.

        The state is not saved. After this interrupt, work done since the last commit is kept; if an error follows, it
        is lost.

        Raises:
            HostsUpdatedInterrupt: on all ranks, if hosts have changed.
        """
        previous = last = self._last_updated_timestamp
        result = HostUpdateResult.no_update
        for timestamp, update in self._take_messages():
            if timestamp > last:
                last = timestamp
                result |= update
        previous, last, result = self._bcast_object((previous, last, int(result)))
        self._last_updated_timestamp = last
        if last > previous:
            # If hosts have only left, every remaining rank has the state already, but for the rows of tables.
            tables = self._sparse_tables()
            self._rows.keep(tables, self._commits)
            raise HostsUpdatedInterrupt(result == HostUpdateResult.removed and not tables)

    def _take_messages(self) -> list[tuple[int, int]]:
        messages = []
        while True:
            try:
                messages.append(self._host_messages.get_nowait())
            except queue.Empty:
                return messages

    def _synchronise(self) -> None:
        """:meth:`sync`, and the last commit's number. Rank 0's state on the disk counts if no rank has a newer one."""
        numbered = _lib.load().gorovod_elastic() != _lib.NOT_ELASTIC or bool(_lib.load().gorovod_checkpoint_due(-1, 0))
        if self._commits < 0 and _lib.load().gorovod_checkpoint_due(0, 1):
            self._read_checkpoint()
        self._rows.sync(self._sparse_tables(), self._bcast_object)
        self.sync()
        self._rows.remember()
        if numbered:
            self._commits = self._bcast_object(self._commits)
            if self._commits >= 0:
                _lib.load().gorovod_elastic_committed(self._commits)

    def _write_checkpoint(self, final: bool) -> None:
        if not _lib.load().gorovod_checkpoint_due(max(self._commits, 0), final) or self._commits < 0:
            return
        saved = self._saved()
        if saved is None:
            raise TypeError(
                f"{type(self).__name__} cannot be written to a disk: unset GOROVOD_CHECKPOINT_DIR, or use a state of "
                "Horovod's, such as TorchState"
            )
        if self._sparse_tables():
            saved = StateWithRows(self._rows.saved, saved)
        _lib.save_checkpoint(self._commits, pickle.dumps(saved, protocol=4))

    def _read_checkpoint(self) -> None:
        found = _lib.load_checkpoint()
        if found is None:
            return
        number, data = found
        # Unpickling runs code: the directory's permissions must keep others from writing there.
        saved = pickle.loads(data)
        if isinstance(saved, StateWithRows):
            self._rows.take(saved.rows)
            saved = saved.state
        self._take_saved(saved)
        self.restore()
        self._commits = number

    def _sparse_tables(self) -> list[Table]:
        """The sparse tables that belong to the state: the same on all ranks, in the same order."""
        return []

    def _roll_back(self) -> None:
        """:meth:`restore`, and note which rows belong to that."""
        self._rows.restore()
        self.restore()

    def _saved(self) -> Any:
        """The state that :meth:`save` has remembered, to be pickled; None if the state cannot be written to a disk."""
        return None

    def _take_saved(self, saved: Any) -> None:
        """Remember the result of :meth:`_saved`, in another process."""
        raise NotImplementedError

    def save(self) -> None:
        """Remember the state, in this process's memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Set the state to what it was at the last :meth:`save`."""
        raise NotImplementedError

    def sync(self) -> None:
        """Set the state to that of rank 0, on all ranks, and remember it. All ranks call this. Blocks."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapt to a job whose size and ranks have changed."""


class ObjectState(State):
    """Picklable values, each an attribute named by its keyword.

    A save keeps the value itself, without a copy. So replace values, such as numbers, rather than changing them in
    place.

    Args:
        bcast_object: a function of one value. It returns rank 0's value on every rank, as ``hvd.broadcast_object``
            does.
        get_rank: ``hvd.rank``.
        kwargs: the values.

    Raises:
        TypeError: a value holds what the front end trains, such as a model or an optimizer.

    Example:
        >>> from horovod.common.elastic import ObjectState
        >>> state = ObjectState(bcast_object=lambda value: value, get_rank=hvd.rank, epoch=0)
        >>> state.epoch = 1
        >>> state.restore()
        >>> state.epoch
        0
    """

    def __init__(self, bcast_object: Callable[[Any], Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        self._saved_state = dict(kwargs)
        self._check_values()
        self._assign()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)

    def _check_values(self) -> None:
        for name, value in self._saved_state.items():
            self._check_value(name, value, f"a {type(value).__name__} that")

    def _check_value(self, name: str, value: Any, described: str) -> None:
        """Raise TypeError if ``value`` holds something trained: restored or received, it would be a copy."""
        held = _held.find(value)
        if held is not None:
            what = type(held).__name__
            raise TypeError(
                f"{type(self).__name__}({name}=...) is {described} holds a {what}. A sync would give other ranks a "
                f"copy of that {what}, which their training does not use. {self._what_to_do(held)}"
            )

    def _what_to_do(self, held: Any) -> str:
        return "Keep it outside the state, or keep in the state only the numbers from which you can set it up again"

    def _assign(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)

    def save(self) -> None:
        """Remember the values.

        Raises:
            HorovodInternalError: the job has failed before a GPU had done all collectives. Nothing is saved.
        """
        _lib.settle()
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Set the values to what they were at the last :meth:`save`."""
        self._assign()

    def _saved(self) -> Any:
        return self._saved_state

    def _take_saved(self, saved: Any) -> None:
        self._saved_state = {name: saved.get(name, value) for name, value in self._saved_state.items()}

    def sync(self) -> None:
        """Set the values to those of rank 0, on all ranks, and remember them. All ranks call this. Blocks."""
        if self._saved_state:
            self.save()
            self._check_values()
            self._saved_state = self._bcast_object(self._saved_state)
            self._assign()


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """Wrap a training function into the loop that this module describes.

    Args:
        func: the function; its first argument is a :class:`State`.
        reset: a function without arguments that leaves the job and joins it anew.

    Returns:
        The function in its loop. It returns what ``func`` returns. HorovodInternalError and HostsUpdatedInterrupt start
        ``func`` anew; every other exception propagates, also one from ``reset``.

    Example:
        >>> from horovod.common.elastic import ObjectState, run_fn
        >>> def reset():
        ...     hvd.shutdown()
        ...     hvd.init()
        >>> state = ObjectState(bcast_object=lambda value: value, get_rank=hvd.rank, epoch=3)
        >>> run_fn(lambda state: state.epoch, reset)(state)
        3
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        setbacks = _Setbacks()
        try:
            while True:
                try:
                    if not skip_sync:
                        state._synchronise()
                    return func(state, *args, **kwargs)
                except HorovodInternalError as e:
                    state._roll_back()
                    setbacks.count(state, e)
                    skip_sync = False
                except HostsUpdatedInterrupt as e:
                    skip_sync = e.skip_sync
                    if skip_sync:
                        _lib.load().gorovod_elastic_intact()
                with notification_manager.paused():
                    _reset(state, reset)
                    state._rows.detach(state._sparse_tables())
                    state.on_reset()
                # If another rank is new, or joins because of an error, all ranks must synchronise.
                skip_sync = skip_sync and not (_in_elastic_job() and _lib.load().gorovod_elastic_needs_sync())
        finally:
            notification_manager.remove_listener(state)

    return wrapper


class _Setbacks:
    """Tells the user why training does not advance, because the launcher reports only processes that die."""

    def __init__(self) -> None:
        self._commits = -1
        self._number = 0

    def count(self, state: State, error: HorovodInternalError) -> None:
        """Note a failure after the state's commit. It reports the second failure, the fourth, the eighth and so on."""
        commits = state._commits
        self._number = self._number + 1 if commits == self._commits else 1
        self._commits = commits
        if self._number > 1 and self._number & (self._number - 1) == 0:
            since = f"since {_commit(state)}" if commits >= 0 else "and nothing was committed"
            print(f"horovod: training has failed {self._number} times {since}: {error}", file=sys.stderr, flush=True)


def _reset(state: State, reset: Callable[[], Any]) -> None:
    try:
        reset()
    except ValueError as e:
        if _lib.load().gorovod_elastic() != _lib.ELASTIC_ABANDONED:
            raise
        state._roll_back()
        state._write_checkpoint(final=True)
        raise HorovodInternalError(f"{str(e).rstrip('.')}. This worker ends. {_where_kept(state)}") from None


def _in_elastic_job() -> bool:
    return bool(_lib.load().gorovod_elastic() != _lib.NOT_ELASTIC)


def _where_kept(state: State) -> str:
    if state._commits < 0:
        return "Nothing was committed."
    commit = _commit(state).capitalize()
    if _lib.load().gorovod_checkpoint_due(-1, 0):
        return f"{commit} is kept in GOROVOD_CHECKPOINT_DIR."
    return f"{commit} is lost with it: set GOROVOD_CHECKPOINT_DIR to keep commits on a disk."


# Where programs count how far they are, the slowest first.
_PROGRESS = ("epoch", "batch", "step", "global_step", "iteration")


def _commit(state: State) -> str:
    """The last commit of a state that has just been restored, with the program's own numbers, if the state has some."""
    numbers = []
    for name in _PROGRESS:
        value: Any = getattr(state, name, None)
        if not isinstance(value, bool):
            with contextlib.suppress(Exception):  # it may be anything
                numbers.append(f"{name} {operator.index(value)}")
    return f"commit {state._commits} ({', '.join(numbers)})" if numbers else f"commit {state._commits}"
