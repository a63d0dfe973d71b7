"""Copies and pickles of a DistributedOptimizer, and of what holds one: they go on as those of one plain process do."""

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from definitions import hvd_size, several
from torch.optim import lr_scheduler

import horovod.torch as hvd

pytestmark = [
    pytest.mark.usefixtures("job"),
    pytest.mark.filterwarnings("ignore:Detected call of", "ignore:Seems like", "ignore:.*verbose parameter"),
]


def saved_and_loaded(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    newer = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 0)
    return torch.load(file, **({"weights_only": False} if newer else {}))


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "old pickle": lambda value: pickle.loads(pickle.dumps(value, protocol=2)),
    "torch.save": saved_and_loaded,
}

OPTIONS = {
    "plain": {},
    "groups": {"groups": 2},
    "sum": {"op": hvd.Sum},
    "predivide": {"gradient_predivide_factor": 2.0},
    "passes": {"backward_passes_per_step": 2},
    "fp16": {"compression": hvd.Compression.fp16},
    "Adasum": {"op": hvd.Adasum},
}


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)).double()


def train(net, optimizer, scheduler, seeds, passes, scale):
    """Two steps, on the sum of the losses of ``seeds`` times ``scale``."""
    for step in range(2):
        for _ in range(passes):
            losses = []
            for seed in seeds:
                torch.manual_seed(10 * step + seed)
                losses.append(net(torch.randn(5, 3, dtype=torch.float64)).square().mean())
            (sum(losses) * scale).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_trains_on_as_in_one_process(how, options):
    given = OPTIONS[options]
    passes = given.get("backward_passes_per_step", 1)
    # Adasum of equal steps is one of them.
    seeds = [0] * hvd.size() if options == "Adasum" else range(hvd.size())
    results = []
    for distribute in (True, False):
        net = network()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        mine = [seeds[hvd.rank()]] if distribute else seeds
        rest = (mine, passes, 1.0 if distribute or options == "sum" else 1 / hvd.size())
        if distribute:
            optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), **given)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
        train(net, optimizer, scheduler, *rest)
        before = [p.detach().clone() for p in net.parameters()]
        copies = COPIES[how]((net, optimizer, scheduler))
        assert type(copies[1]).__name__ == "Adam" and isinstance(copies[1], torch.optim.Adam)
        train(*copies, *rest)
        for p, q in zip(net.parameters(), before):
            assert torch.equal(p, q)  # the original stays as it was
        train(net, optimizer, scheduler, *rest)
        for p, q in zip(net.parameters(), copies[0].parameters()):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9)
        results.append(net)
    for p, q in zip(*(net.parameters() for net in results)):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-2 if options == "fp16" else 1e-9)


def test_copy_shares_everything():
    net = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), net.named_parameters())
    other = copy.copy(optimizer)
    assert other.param_groups is optimizer.param_groups and other.state is optimizer.state
    for stepping in (other, optimizer, other):
        before = net[1].bias.item()
        (net[1].bias * (hvd.rank() + 1)).sum().backward()
        stepping.step()
        stepping.zero_grad()
        assert net[1].bias.item() == pytest.approx(before - 0.5 * (hvd.size() + 1) / 2)


SCHEDULERS = {
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=20),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, cycle_momentum=False),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, abs),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, abs),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=20)], [2]
    ),
}


@pytest.mark.parametrize("what", ["scheduler", "its state_dict"])
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_what_plain_pytorch_can_copy_of_a_scheduler_can_be_copied(name, how, what):
    outcomes = []
    for distribute in (False, True):
        net = network()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.25, momentum=0.5)
        if distribute:
            optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
        scheduler = SCHEDULERS[name](optimizer)
        try:
            if what == "scheduler":
                copied = COPIES[how](scheduler)
                assert copied.optimizer is not optimizer
            else:
                copied = scheduler
                copied.load_state_dict(COPIES[how](scheduler.state_dict()))
            for _ in range(3):
                copied.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            outcomes.append(copied.optimizer.param_groups[0]["lr"])
        except Exception as e:
            outcomes.append(type(e))
    assert outcomes[0] == outcomes[1]


@several()
def test_rank_0_alone_may_make_copies():
    """As for a checkpoint: neither the copy nor its name concerns the other ranks."""
    net = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), net.named_parameters(), groups=2)
    kept = copy.deepcopy((net, optimizer)) if hvd.rank() == 0 else None
    assert kept is None or kept[1].param_groups[0]["lr"] == 0.5
    again = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), net.named_parameters())
    for stepping in (optimizer, again):
        (net[1].bias * (hvd.rank() + 1)).sum().backward()
        for o in (optimizer, again):
            o.synchronize()
        with stepping.skip_synchronize():
            stepping.step()
        stepping.zero_grad()
    everyone = hvd.allgather(net[1].bias.detach().reshape(1, -1))
    assert bool((everyone == everyone[0]).all())


@pytest.mark.skipif(hvd_size() > 1, reason="tests one rank")
def test_outside_a_job_it_is_the_optimizer_alone(tmp_path):
    net = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), net.named_parameters(), groups=2)
    file = tmp_path / "optimizer.pickle"
    file.write_bytes(pickle.dumps((net, optimizer)))
    code = (
        "import pickle, sys, warnings\n"
        "warnings.simplefilter('always')\n"
        "net, optimizer = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(type(optimizer), optimizer.param_groups[0]['params'][0] is net[0].weight)\n"
        "net[1].bias.sum().backward()\n"
        "before = net[1].bias.item()\n"
        "optimizer.step(), optimizer.zero_grad()\n"
        "print(before - net[1].bias.item())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["<class 'torch.optim.sgd.SGD'> True", "0.5"]
    assert "call hvd.init() before you load it, or give it to hvd.DistributedOptimizer" in result.stderr


def test_a_shallow_copy_steps_right_after_the_original():
    net, plain_net = network(), network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), net.named_parameters())
    plain = torch.optim.SGD(plain_net.parameters(), lr=0.5)
    other, plain_other = copy.copy(optimizer), copy.copy(plain)
    for turn in (optimizer, other, optimizer, other):
        turn.zero_grad()
        net(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
        turn.step()
    for turn in (plain, plain_other, plain, plain_other):
        turn.zero_grad()
        plain_net(torch.ones(2, 3, dtype=torch.float64)).sum().backward()
        turn.step()
    for p, q in zip(net.parameters(), plain_net.parameters()):
        torch.testing.assert_close(p, q)


@pytest.mark.skipif(hvd_size() != 2, reason="needs two ranks")
def test_a_process_set_of_another_job():
    net = network()
    first = hvd.ProcessSet([0])
    hvd.shutdown()
    hvd.init(process_sets=[first])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5), process_set=first)
    assert copy.deepcopy(optimizer).process_set.process_set_id == first.process_set_id
    content = pickle.dumps(optimizer)
    hvd.shutdown()
    hvd.init()
    with pytest.raises(ValueError, match=r"process set of ranks \[0\], which this job does not have"):
        pickle.loads(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.shutdown()
        with pytest.raises(UserWarning, match="loaded as SGD alone"):
            pickle.loads(content)
        hvd.init()
