"""Values of a TorchState that have a state of their own: they stay themselves, on every rank, or are refused."""

import functools
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

import horovod.torch as hvd
from horovod.common.elastic import ObjectState
from horovod.torch.elastic import TorchState, state

pytestmark = [
    pytest.mark.usefixtures("job"),
    pytest.mark.filterwarnings("ignore:Detected call of", "ignore:Seems like", "ignore:The epoch parameter"),
]


def one_cycle(optimizer):
    return lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=40)


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4], gamma=0.5),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, step_size_up=3, scale_fn=lambda x: 0.5),
    "OneCycleLR": one_cycle,
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=3),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 9),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o), one_cycle(o)], [2]),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)]
    ),
}


def made(name, distribute):
    net = torch.nn.Linear(2, 1)
    optimizer = base = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.5)
    if distribute == "before":
        optimizer = hvd.DistributedOptimizer(base, net.named_parameters())
    scheduler = SCHEDULERS[name](optimizer)
    if distribute == "after":
        optimizer = hvd.DistributedOptimizer(base, net.named_parameters())
    return optimizer, scheduler


def advance(scheduler, steps):
    for _ in range(steps):
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))


def rates(optimizer, scheduler):
    """The learning rates of the next steps."""
    found = []
    for _ in range(5):
        found.append(optimizer.param_groups[0]["lr"])
        advance(scheduler, 1)
    return found


@pytest.mark.parametrize("distribute", ["no", "before", "after"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler(name, distribute):
    """After a restore it goes on from the commit, after a sync from rank 0's place, and drives its own optimizer."""
    optimizer, scheduler = made(name, distribute)
    driven = scheduler.__dict__.get("optimizer")
    holder = TorchState(optimizer=optimizer, scheduler=scheduler, epoch=0)
    advance(scheduler, 3)
    holder.commit()
    reference, reference_scheduler = made(name, "no")
    advance(reference_scheduler, 3)
    expected = rates(reference, reference_scheduler)
    for _ in range(2):
        advance(scheduler, 2)
        holder.restore()
        assert holder.scheduler is scheduler and scheduler.__dict__.get("optimizer") is driven
        assert rates(optimizer, scheduler) == expected
    holder.restore()
    advance(scheduler, 2 * hvd.rank())
    holder.sync()
    assert holder.scheduler is scheduler and scheduler.__dict__.get("optimizer") is driven
    assert rates(optimizer, scheduler) == expected
    assert hvd.allgather_object(optimizer.param_groups[0]["lr"]) == [optimizer.param_groups[0]["lr"]] * hvd.size()
    holder.restore()  # what sync has saved
    assert rates(optimizer, scheduler) == expected


def test_a_scheduler_given_later():
    optimizer, scheduler = made("StepLR", "no")
    holder = TorchState(optimizer=optimizer, scheduler=None)
    holder.scheduler = scheduler
    advance(scheduler, 1 + hvd.rank())
    holder.sync()
    assert holder.scheduler is scheduler and scheduler.last_epoch == 1
    advance(scheduler, 3)
    holder.restore()
    assert scheduler.last_epoch == 1


def test_a_model_given_later():
    holder = TorchState()
    holder.model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        holder.model.weight.fill_(hvd.rank() + 3.0)
    holder.sync()
    assert holder.model.weight.item() == 3
    with torch.no_grad():
        holder.model.weight.zero_()
    holder.restore()
    assert holder.model.weight.item() == 3


class Counter:
    """Has a state, as a sampler, an average of weights or a scaler of losses has."""

    def __init__(self):
        self.count, self.owner = torch.zeros(1), self

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count.copy_(state_dict["count"])


class Metric(torch.nn.Module):
    """As in torchmetrics: unless persistent() says so, the state is not in the state_dict; and it may be a list."""

    def __init__(self):
        super().__init__()
        self.total, self.seen, self.kept = torch.zeros(1), [], False

    metric_state = property(lambda self: {"total": self.total, "seen": self.seen})

    def persistent(self, mode=False):
        self.kept = mode

    def state_dict(self, *args, **kwargs):
        return {"total": self.total, "seen": list(self.seen)} if self.kept else {}

    def load_state_dict(self, state_dict, strict=True):
        self.total, self.seen = state_dict["total"], state_dict["seen"]


def test_other_values_with_a_state():
    counter, metric, average = Counter(), Metric(), torch.optim.swa_utils.AveragedModel(torch.nn.Linear(1, 1))
    holder = TorchState(counter=counter, metric=metric, average=average)
    counter.count += 2
    metric.total += 3
    metric.seen.append(torch.ones(1))
    average.n_averaged += 4
    holder.save()
    counter.count += 5
    metric.total += 5
    metric.seen.append(torch.ones(1))
    average.n_averaged += 5
    holder.restore()
    assert (counter.count.item(), metric.total.item(), len(metric.seen)) == (2, 3, 1)
    assert average.n_averaged.item() == 4
    for value in (counter.count, metric.total, average.n_averaged):
        value += hvd.rank()
    holder.sync()
    assert holder.counter is counter and holder.metric is metric and holder.average is average
    assert (counter.count.item(), metric.total.item(), average.n_averaged.item()) == (2, 3, 4)


def test_a_scaler():
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is None:
        pytest.skip("this PyTorch has no torch.amp.GradScaler, which came with 2.3")
    scaler = scaler("cpu", init_scale=2.0 ** (1 + hvd.rank()))
    scaler.scale(torch.ones(1))  # it has no scale of its own before
    holder = TorchState(scaler=scaler)
    holder.sync()
    assert holder.scaler is scaler and scaler.get_scale() == 2
    scaler.update(8.0)
    holder.restore()
    assert scaler.get_scale() == 2


class Holder:
    def __init__(self, held):
        self.held = held


class Stateful(Holder):
    def state_dict(self):
        return dict(self.__dict__)

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)


HOLDING = {
    "list": lambda held: [1, held],
    "dict": lambda held: {"a": {"b": (held,)}},
    "object": Holder,
    "partial": lambda held: functools.partial(print, held),
    "state_dict": Stateful,
}


@pytest.mark.parametrize("how", HOLDING)
def test_what_holds_an_optimizer_or_a_module_is_refused(how):
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    distributed = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    for held, name in [(net, "Linear"), (optimizer, "SGD"), (distributed, "SGD"), (scheduler, "SGD")]:
        with pytest.raises(TypeError, match=rf"TorchState\(mine=\.\.\.\) is a .* holds a {name}\..*keyword of its own"):
            TorchState(mine=HOLDING[how](held), epoch=0)
    TorchState(mine=HOLDING[how](torch.nn.ReLU()), more=HOLDING[how](torch.ones(3)), kind=torch.nn.Linear)


def test_what_gets_an_optimizer_later_is_refused_by_sync():
    holder = TorchState(mine=None)
    holder.mine = Holder(torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.5))
    with pytest.raises(TypeError, match=r"TorchState\(mine=\.\.\.\) is a Holder that holds a SGD"):
        holder.sync()


def test_what_holds_an_optimizer_is_refused_by_an_object_state():
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.5)
    with pytest.raises(TypeError, match=r"ObjectState\(mine=\.\.\.\) is a Holder that holds a SGD.*Keep it outside"):
        ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, mine=Holder(optimizer))


def test_a_model_without_state_is_refused():
    nets = [torch.nn.Linear(1, 1)]
    with pytest.raises(TypeError, match=r"TorchState\(model=\.\.\.\) is a list.*TorchState\(model1=\.\.\., model2="):
        TorchState(model=nets)


def test_a_registered_handler_comes_first():
    class OwnHandler(state.StatefulHandler):
        pass

    registry = state.get_handler_registry()
    state.set_handler_registry([*registry, (Counter, OwnHandler)])
    try:
        assert type(TorchState(counter=Counter())._handlers["counter"]) is OwnHandler
    finally:
        state.set_handler_registry(registry)


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.5)
        holder = TorchState(optimizer=optimizer, scheduler=lr_scheduler.StepLR(optimizer, 1))
        holder.save()
        holder.restore()
