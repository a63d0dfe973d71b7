"""Elastic state, sampler and loop, without a driver: the job stays the same, or its ranks join it anew."""

import copy

import pytest
import torch
from definitions import several, works

import horovod.torch as hvd
from horovod.common import _lib, elastic
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult, WorkerNotificationManager
from horovod.torch.elastic import ElasticSampler, TorchState, sampler, state

pytestmark = pytest.mark.usefixtures("job")


def network(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Linear(2, 2)


def equal(module, other):
    return all(torch.equal(p, q) for p, q in zip(module.state_dict().values(), other.state_dict().values()))


def step(net, optimizer):
    optimizer.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()


class Recorded(elastic.State):
    """A state that writes down what happens to it."""

    def __init__(self, bcast_object=hvd.broadcast_object):
        super().__init__(bcast_object, hvd.rank)
        self.events = []

    def save(self):
        self.events.append("save")

    def restore(self):
        self.events.append("restore")

    def sync(self):
        self.events.append("sync")

    def reset(self):
        self.events.append("reset")


# ---- the loop


def run(outcomes):
    """Run a function that raises, or returns, one of ``outcomes`` after the other; returns result and events."""
    recorded = Recorded()
    recorded.register_reset_callbacks([lambda: recorded.events.append("callback")])
    outcomes = iter(outcomes)

    def func(given, word, other):
        assert given is recorded and (word, other) == ("word", "other")
        recorded.events.append("call")
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    wrapped = elastic.run_fn(func, lambda: recorded.events.append("rejoin"))
    try:
        return wrapped(recorded, "word", other="other"), recorded.events
    except ZeroDivisionError as e:
        return e, recorded.events


AFTER = ["rejoin", "reset", "callback"]


@pytest.mark.parametrize(
    ("outcomes", "events"),
    [
        ([7], ["sync", "call"]),
        ([HorovodInternalError(), 7], ["sync", "call", "restore", *AFTER, "sync", "call"]),
        ([HostsUpdatedInterrupt(False), 7], ["sync", "call", *AFTER, "sync", "call"]),
        ([HostsUpdatedInterrupt(True), 7], ["sync", "call", *AFTER, "call"]),
        (
            [HostsUpdatedInterrupt(True), HorovodInternalError(), 7],
            ["sync", "call", *AFTER, "call", "restore", *AFTER, "sync", "call"],
        ),
    ],
    ids=["nothing", "error", "update", "hosts gone", "hosts gone, then an error"],
)
def test_loop(outcomes, events):
    assert run(outcomes) == (7, events)


def test_other_exceptions_leave_the_loop():
    outcome, events = run([ZeroDivisionError()])
    assert isinstance(outcome, ZeroDivisionError)
    assert events == ["sync", "call"]
    assert elastic.notification_manager._listeners == []


def test_an_error_while_synchronising_is_handled():
    recorded = Recorded()
    failures = [HorovodInternalError(), None]

    def sync():
        recorded.events.append("sync")
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    recorded.sync = sync
    assert elastic.run_fn(lambda s: 7, lambda: None)(recorded) == 7
    assert recorded.events == ["sync", "restore", "reset", "sync"]


# ---- updates


def test_no_updates_without_a_driver():
    recorded = Recorded()
    recorded.commit()
    recorded.check_host_updates()
    assert recorded.events == ["save"]


@pytest.mark.parametrize(
    ("updates", "skip_sync"),
    [
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.removed, HostUpdateResult.removed], True),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
        ([HostUpdateResult.mixed], False),
    ],
    ids=str,
)
def test_what_rank_0_hears_interrupts_all(updates, skip_sync):
    recorded = Recorded()
    manager = WorkerNotificationManager()
    manager.register_listener(recorded)
    manager.register_listener(recorded)  # counts once
    if hvd.rank() == 0:
        for timestamp, update in enumerate(updates, 1):
            manager.handle_hosts_updated(timestamp, update)
    elif hvd.rank() == 1:
        recorded.on_hosts_updated(99, HostUpdateResult.added)  # nobody asks this rank
    with pytest.raises(HostsUpdatedInterrupt) as raised:
        recorded.commit()
    assert raised.value.skip_sync is skip_sync
    assert recorded.events == ["save"]
    recorded.check_host_updates()  # each update interrupts once
    if hvd.rank() == 0:
        manager.handle_hosts_updated(1, HostUpdateResult.added)  # old news
    recorded.check_host_updates()
    manager.remove_listener(recorded)
    manager.handle_hosts_updated(100, HostUpdateResult.added)
    recorded.check_host_updates()


def test_a_reset_forgets_updates():
    recorded = Recorded()
    recorded.on_hosts_updated(1, HostUpdateResult.added)
    recorded.on_reset()
    recorded.check_host_updates()


# ---- ObjectState


def test_object_state():
    s = elastic.ObjectState(hvd.broadcast_object, hvd.rank, epoch=0, name="a")
    s.epoch, s.name = 3, "b"
    s.restore()
    assert (s.epoch, s.name) == (0, "a")
    s.epoch = 5 + hvd.rank()
    s.commit()
    s.epoch = 100
    s.restore()
    assert s.epoch == 5 + hvd.rank()
    s.epoch = 7 + hvd.rank()
    s.sync()
    assert s.epoch == 7  # what rank 0 has now, saved or not
    s.epoch = 0
    s.restore()
    assert s.epoch == 7


def test_an_empty_object_state_sends_nothing():
    elastic.ObjectState(None, hvd.rank).sync()


# ---- TorchState


@pytest.mark.parametrize("wrapped", [True, False])
def test_save_and_restore(wrapped):
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    s = TorchState(model=net, optimizer=optimizer, batch=0)
    assert s.model is net and s.optimizer is optimizer
    step(net, optimizer)
    s.batch = 1
    s.commit()
    saved = copy.deepcopy((net, optimizer.state_dict()))
    # Twice: what is restored must not become what is saved.
    for _ in range(2):
        step(net, optimizer)
        optimizer.param_groups[0]["lr"] = 0.5
        s.batch = 2
        assert not equal(net, saved[0])
        s.restore()
        assert s.batch == 1
        assert equal(net, saved[0])
        now = optimizer.state_dict()
        assert now["param_groups"] == saved[1]["param_groups"]
        for mine, expected in zip(now["state"].values(), saved[1]["state"].values()):
            assert all(torch.equal(torch.as_tensor(mine[k]), torch.as_tensor(expected[k])) for k in expected)
    step(net, optimizer)


def test_sync():
    net = network(seed=hvd.rank())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * (1 + hvd.rank()), momentum=0.9)
    for _ in range(hvd.rank()):
        step(net, optimizer)
    s = TorchState(model=net, optimizer=optimizer, batch=hvd.rank())
    s.batch += 10
    s.sync()
    assert s.batch == 10
    assert equal(net, network(seed=0))
    assert optimizer.param_groups[0]["lr"] == 0.1
    with torch.no_grad():
        net.weight.zero_()
    s.restore()
    assert equal(net, network(seed=0))


def test_what_a_gpu_has_not_done_is_not_saved(monkeypatch):
    net = network(seed=0)
    s = TorchState(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), batch=1)
    saved = s._saved()

    def unfinished():
        raise HorovodInternalError("the device may not have done all operations")

    monkeypatch.setattr(_lib, "settle", unfinished)
    with torch.no_grad():
        net.weight.zero_()
    s.batch = 2
    for saves in (s.save, s.sync, s.commit, *(f for h in s._handlers.values() for f in (h.save, h.sync))):
        with pytest.raises(HorovodInternalError):
            saves()
    assert s._saved() == saved and s._saved()[0]["model"] is saved[0]["model"]
    s.restore()
    assert s.batch == 1 and equal(net, network(seed=0))


def test_assignment_saves():
    s = TorchState(model=network(), batch=0)
    other = network(seed=2)
    s.model = other
    assert s.model is other
    with torch.no_grad():
        other.weight.zero_()
    s.restore()
    assert equal(other, network(seed=2))


def test_handlers():
    s = TorchState(teacher=network(), sampler=ElasticSampler(range(4)), note="plain")
    assert s.model is None and s.optimizer is None
    kinds = {name: type(handler) for name, handler in s._handlers.items()}
    assert kinds == {"teacher": state.ModelStateHandler, "sampler": state.SamplerStateHandler}
    for method in ("save", "restore", "sync"):
        with pytest.raises(NotImplementedError):
            getattr(state.StateHandler(None), method)()


def test_a_handler_of_ones_own():
    class Words(list):
        pass

    class WordsHandler(state.StateHandler):
        def save(self):
            self.saved = list(self.value)

        def restore(self):
            self.value[:] = self.saved

        def sync(self):
            self.value[:] = hvd.broadcast_object(list(self.value))
            self.save()

    registry = state.get_handler_registry()
    state.set_handler_registry([*registry, (Words, WordsHandler)])
    try:
        s = TorchState(words=Words(["a", hvd.rank()]))
    finally:
        state.set_handler_registry(registry)
    s.save()
    s.words.append("lost")
    s.restore()
    assert s.words == ["a", hvd.rank()]
    s.sync()
    assert s.words == ["a", 0]


def test_training_goes_on_after_errors_and_updates(monkeypatch):
    """Each rank in turn fails during a step. The result is that of training without failures."""
    epochs, batches = 2, 6

    def train_alone():
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(epochs * batches):
            step(net, optimizer)
        return net

    net = network(seed=1 + hvd.rank())
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(base, net.named_parameters())
    s = TorchState(model=net, optimizer=optimizer, epoch=0, batch=0)
    failing = [(0, 3, r) for r in range(hvd.size())] + [(1, 2, r) for r in range(hvd.size())]
    interrupted = [(1, 4)]
    calls = []

    @hvd.elastic.run
    def train(s):
        calls.append((s.epoch, s.batch))
        while s.epoch < epochs:
            while s.batch < batches:
                place = (s.epoch, s.batch)
                if failing and failing[0][:2] == place:
                    victim = failing.pop(0)[2]
                    optimizer.zero_grad()
                    net(torch.ones(1, 2)).sum().backward()
                    if hvd.rank() == victim:
                        raise HorovodInternalError("this rank's own")
                    if hvd.size() > 1:
                        optimizer.step()
                        hvd.barrier()  # which the victim does not reach
                    raise HorovodInternalError("of one rank")
                if interrupted and interrupted[0] == place:
                    interrupted.pop()
                    if hvd.rank() == 0:
                        s.on_hosts_updated(1, HostUpdateResult.added)
                    s.check_host_updates()
                step(net, optimizer)
                s.batch += 1
                s.commit()
            s.epoch, s.batch = s.epoch + 1, 0
        return "done"

    assert train(s) == "done"
    assert not failing and not interrupted
    assert calls == [(0, 0)] + [(0, 3)] * hvd.size() + [(1, 2)] * hvd.size() + [(1, 4)]
    expected = train_alone()
    for p, q in zip(net.parameters(), expected.parameters()):
        torch.testing.assert_close(p, q)
    works()


# ---- ElasticSampler


def everyone(elastic_sampler):
    return hvd.allgather_object(list(elastic_sampler))


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("length", [0, 1, 2, 12, 13])
def test_sampler_deals_everything_out(length, shuffle):
    s = ElasticSampler(range(length), shuffle=shuffle, seed=3)
    parts = everyone(s)
    assert [len(part) for part in parts] == [len(s)] * hvd.size()
    assert len(s) == -(-length // hvd.size())
    dealt = [part[i] for i in range(len(s)) for part in parts]
    assert sorted(dealt[:length]) == list(range(length))
    assert dealt[length:] == (dealt[:length] * hvd.size())[: s.total_size - length]
    if not shuffle:
        assert dealt[:length] == list(range(length))


def test_sampler_in_the_midst_of_an_epoch():
    length = 40
    s = ElasticSampler(range(length), seed=1)
    first = list(s)
    s.record_batch(0, 3)
    s.record_batch(1, 2)
    assert list(s) == first  # until a reset
    assert s.state_dict() == {"epoch": 0, "processed_num": 5 * hvd.size()}
    done = {i for part in hvd.allgather_object(first[:5]) for i in part}
    other = ElasticSampler(range(length), seed=1)
    other.load_state_dict(s.state_dict())
    rest = [i for part in everyone(other) for i in part]
    assert set(rest) == set(range(length)) - done
    s.set_epoch(1)
    assert (s.epoch, s.processed_num, len(s)) == (1, 0, -(-length // hvd.size()))
    assert list(s) != first
    assert sorted({i for part in everyone(s) for i in part}) == list(range(length))


@pytest.mark.parametrize("before", [1, 2, 3, 8])
def test_sampler_with_another_number_of_ranks(monkeypatch, before):
    """What ``before`` ranks have not processed is dealt out to the ranks of this job."""
    length = 30
    done = set()
    for r in range(before):
        monkeypatch.setattr(sampler, "size", lambda: before)
        monkeypatch.setattr(sampler, "rank", lambda r=r: r)
        s = ElasticSampler(range(length))
        done |= set(list(s)[:2])
        s.record_batch(0, 2)
    assert len(done) == 2 * before
    monkeypatch.undo()
    holder = TorchState(sampler=s)
    holder.on_reset()
    assert (s.num_replicas, s.rank) == (hvd.size(), hvd.rank())
    rest = [i for part in everyone(s) for i in part]
    assert set(rest) == set(range(length)) - done


def test_sampler_in_a_state():
    s = ElasticSampler(range(12))
    holder = TorchState(sampler=s)
    s.record_batch(0, 1)
    holder.commit()
    s.record_batch(1, 1)
    holder.restore()
    assert s.processed_num == hvd.size()
    s.record_batch(1, 1 + hvd.rank())
    holder.sync()
    assert s.processed_num == 2 * hvd.size()


@several()
def test_sampler_needs_horovod():
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(ValueError, match="not been initialized"):
        ElasticSampler(range(3))
    hvd.init()
