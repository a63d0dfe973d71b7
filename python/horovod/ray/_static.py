"""Jobs whose size is fixed: their workers live from ``start`` to ``shutdown``."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Callable, Mapping, Optional, Sequence

import ray
from ray.util.queue import Queue

from horovod.ray import _checks, _dropped, _pickling, _waiting
from horovod.ray._coordinator import Coordinator
from horovod.ray._deaths import WorkerDiedError
from horovod.ray._earlier import Earlier
from horovod.ray._facts import Facts, Place
from horovod.ray._messages import Messages, Sender
from horovod.ray._results import Call
from horovod.ray._settings import MiniSettings
from horovod.ray.adapter import Adapter, Callbacks
from horovod.ray.strategy import BaseStrategy


@dataclasses.dataclass
class _Work:
    """A function with its arguments, as a worker executes it."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def __call__(self, executable: Any) -> Any:
        return self.function(*self.args, **self.kwargs)


class StaticAdapter(Adapter):
    """A job of the workers that ``strategy`` starts."""

    def __init__(self, settings: MiniSettings, strategy: BaseStrategy) -> None:
        self.settings = settings
        self.strategy = strategy
        self.workers: list[Any] = []  # by rank
        self._places: list[Place] = []  # by rank
        self._queue: Optional[Queue] = None
        self._call = 0  # the number of the newest call
        self._earlier = Earlier()
        self._dead = ""  # the rank whose process has ended
        self._failed = False  # the newest call has raised on a rank, or been interrupted
        self._finalizer: Optional[weakref.finalize[..., Any]] = None

    def start(
        self,
        executable_cls: Optional[Callable[..., Any]] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, Any]] = None,
    ) -> None:
        if self.workers:
            raise RuntimeError("the workers run already: call shutdown() before start()")
        try:
            self._join(self.strategy.create_workers(), dict(extra_env_vars or {}))
            if executable_cls is not None:
                arguments = _pickling.put((executable_cls, executable_args, executable_kwargs), "executable_cls")
                self._collect([w.start_executable_of.remote(arguments) for w in self.workers], "start")
            self._finalizer = _dropped.end_with(self, self.strategy)
        except BaseException:
            self.shutdown()
            raise

    def _join(self, workers: list[Any], extra: dict[str, Any]) -> None:
        """Give each worker its rank, and all workers the way to one another."""
        facts = self._await_start(workers)
        _checks.same_as_driver(facts)
        order = host_by_host([f.node_id for f in facts])
        self.workers = [workers[i] for i in order]
        facts = [facts[i] for i in order]
        self._places = [Place(rank, f) for rank, f in enumerate(facts)]
        coordinator = Coordinator(self.settings)
        for rank, f in enumerate(facts):
            coordinator.register(f.hostname, f.node_id, rank)
        places = coordinator.finalize_registration()
        head = self.workers[0]
        ray.get(head.update_env_vars.remote(extra))  # those that show the job count for the process where ranks meet
        rendezvous = ray.get(head.establish_rendezvous.remote(len(facts), self.settings.nics))
        rendezvous.update(self.settings._environment())
        gpus = visible_gpus(facts)
        done = []
        for rank, worker in enumerate(self.workers):
            done.append(worker.update_env_vars.remote({**places[rank], **gpus[rank], **rendezvous, **extra}))
            if rank > 0:
                done.append(worker.adopt_secret.remote(head))
        ray.get(done)

    def _await_start(self, workers: list[Any]) -> list[Facts]:
        refs = [w.facts.options(name=f"horovod: start worker {i}").remote() for i, w in enumerate(workers)]
        own = self.strategy._created_placement_group is not None  # then there is room
        limit = float("inf") if own else self.settings.placement_group_timeout_s
        try:
            return _waiting.for_workers(refs, limit, self.strategy.resources_per_worker(), own)
        except TimeoutError:
            raise
        except Exception as error:
            raise _checks.why_no_start(error) from None

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks = None) -> list[Any]:
        self._earlier.wait()
        return self._collect(self._submit(fn, fn, callbacks), _name(fn), callbacks)

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Callbacks = None,
    ) -> list[Any]:
        self._earlier.wait()
        return self._collect(self._submit(_work(fn, args, kwargs), fn, callbacks), _name(fn), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[Any]:
        refs = self._submit(_work(fn, args, kwargs), fn)
        self._earlier.add(_name(fn), zip(self._places, self.workers))
        return refs

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        self._earlier.wait()
        return self._collect(self._submit(fn, fn, workers=self._started()[:1]), _name(fn))[0]

    def _submit(
        self,
        work: Callable[[Any], Any],
        named_for: Callable[..., Any],
        callbacks: Callbacks = None,
        workers: Optional[list[Any]] = None,
    ) -> list[Any]:
        """Let the workers execute it, and return their promises."""
        workers = self._started() if workers is None else workers
        shared = _pickling.put(work, _name(named_for))
        if callbacks and self._queue is None:
            self._queue = Queue(actor_options={"num_cpus": 0})
        self._call += 1
        if self._failed:  # some ranks may not know it yet
            _waiting.let_go([worker.leave_job.remote() for worker in self.workers])
            self._failed = False
        workers[0].set_queue.remote(Sender(self._queue, self._call) if callbacks else None)
        return [
            worker.call.options(name=f"horovod: {_name(named_for)}, rank {rank}").remote(shared)
            for rank, worker in enumerate(workers)
        ]

    def _started(self) -> list[Any]:
        if not self.workers:
            raise RuntimeError("there are no workers: call start() first")
        if self._dead:
            raise RuntimeError(f"{self._dead} has died before: call shutdown(), then start() for new workers")
        return self.workers

    def _collect(self, refs: list[Any], name: str, callbacks: Callbacks = None) -> list[Any]:
        call = Call(refs, self._places, name)
        try:
            return call.collect(Messages(self._queue, callbacks, self._call))
        except WorkerDiedError as death:
            self._dead = str(self._places[death.rank])
            raise
        except BaseException:
            self._failed = True
            raise
        finally:
            self._earlier.add(name, [(place, self.workers[place.rank]) for place in call.running()])

    def shutdown(self) -> None:
        self.workers, self._places, self._dead, self._failed = [], [], "", False
        self._earlier = Earlier()
        if self._finalizer is not None:
            self._finalizer.detach()
        self.strategy.shutdown()
        if self._queue is not None:
            self._queue.shutdown(force=True)
            self._queue = None


def host_by_host(nodes: Sequence[str]) -> list[int]:
    """The indices of ``nodes``, grouped by node; nodes are in the order of their first index."""
    first: dict[str, int] = {}
    for index, node in enumerate(nodes):
        first.setdefault(node, index)
    return sorted(range(len(nodes)), key=lambda index: (first[nodes[index]], index))


def visible_gpus(facts: Sequence[Facts]) -> list[dict[str, str]]:
    """The variables that show each worker all GPUs of its host's workers, in the order of the local ranks."""
    of_node: dict[str, list[str]] = {}
    for f in facts:
        seen = of_node.setdefault(f.node_id, [])
        seen.extend(gpu for gpu in f.gpu_ids if gpu not in seen)
    return [{"CUDA_VISIBLE_DEVICES": ",".join(of_node[f.node_id])} if of_node[f.node_id] else {} for f in facts]


def _work(fn: Callable[..., Any], args: Optional[Sequence[Any]], kwargs: Optional[Mapping[str, Any]]) -> _Work:
    return _Work(fn, tuple(args or ()), dict(kwargs or {}))


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)
