"""DistributedOptimizer and the functions that make ranks equal."""

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import torch
from definitions import adasum, hvd_size, several
from torch.nn import functional

import horovod.torch as hvd

pytestmark = pytest.mark.usefixtures("job")

ROWS = 4  # of each rank's batch

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adamax": lambda p: torch.optim.Adamax(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "NAdam": lambda p: torch.optim.NAdam(p),
    "RAdam": lambda p: torch.optim.RAdam(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


def model(seed=1):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


def batch(step):
    """The whole batch of a step, of which each rank takes its part."""
    generator = torch.Generator().manual_seed(step)
    rows = ROWS * hvd.size()
    return (
        torch.randn(rows, 6, generator=generator, dtype=torch.float64),
        torch.randn(rows, 2, generator=generator, dtype=torch.float64),
    )


def mine(tensor):
    return tensor[hvd.rank() * ROWS : (hvd.rank() + 1) * ROWS]


def loss(net, x, y):
    return functional.mse_loss(net(x), y)


def assert_same(a, b, **tolerance):
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(p, q, **tolerance)


def assert_equal_on_all_ranks(tensors):
    for t in tensors:
        everyone = hvd.allgather(t.detach().reshape(1, -1).contiguous())
        assert bool((everyone == everyone[0]).all())


def train(net, optimizer, steps=5):
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss(net, mine(x), mine(y)).backward()
        optimizer.step()


def train_alone(net, optimizer, steps=5):
    for step in range(steps):
        optimizer.zero_grad()
        loss(net, *batch(step)).backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("named", [True, False])
def test_equals_one_process_with_the_whole_batch(name, named):
    net, reference = model(), model()
    base = OPTIMIZERS[name](net.parameters())
    optimizer = hvd.DistributedOptimizer(base, net.named_parameters() if named else None)
    assert isinstance(optimizer, type(base))
    assert type(optimizer).__name__ == type(base).__name__
    train(net, optimizer)
    train_alone(reference, OPTIMIZERS[name](reference.parameters()))
    assert_same(net, reference)
    assert_equal_on_all_ranks(net.parameters())


@pytest.mark.smoke
def test_sum_and_predivide():
    for kwargs, factor in [
        ({"op": hvd.Sum}, hvd.size()),
        ({"gradient_predivide_factor": 2.0}, 1),
        ({"gradient_predivide_factor": float(hvd.size())}, 1),
    ]:
        net, reference = model(), model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        train(net, hvd.DistributedOptimizer(optimizer, net.named_parameters(), **kwargs))
        train_alone(reference, torch.optim.SGD(reference.parameters(), lr=0.1 * factor))
        assert_same(net, reference)


def test_fp16_compression():
    net, reference = model(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, hvd.DistributedOptimizer(optimizer, net.named_parameters(), compression=hvd.Compression.fp16))
    train_alone(reference, torch.optim.SGD(reference.parameters(), lr=0.1))
    assert all(p.grad.dtype is torch.float64 for p in net.parameters())
    assert_same(net, reference, atol=1e-2, rtol=1e-2)
    assert_equal_on_all_ranks(net.parameters())


def test_several_backward_passes_add_up():
    passes = 3
    net, reference = model(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), backward_passes_per_step=passes)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(3):
        for i in range(passes):
            x, y = batch(10 * step + i)
            loss(net, mine(x), mine(y)).backward()
            loss(reference, x, y).backward()
        for opt in (optimizer, plain):
            opt.step()
            opt.zero_grad()
    assert_same(net, reference)

    optimizer.set_backward_passes_per_step(1)
    x, y = batch(99)
    loss(net, mine(x), mine(y)).backward()
    loss(reference, x, y).backward()
    optimizer.step()
    plain.step()
    assert_same(net, reference)


def test_step_before_all_passes_reduces_what_there_is():
    net, reference = model(), model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), backward_passes_per_step=2)
    x, y = batch(0)
    loss(net, mine(x), mine(y)).backward()
    optimizer.step()
    loss(reference, x, y).backward()
    torch.optim.SGD(reference.parameters(), lr=0.1).step()
    assert_same(net, reference)


@several()
def test_too_many_backward_passes():
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    x, y = batch(0)
    loss(net, mine(x), mine(y)).backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        loss(net, mine(x), mine(y)).backward()
    optimizer.synchronize()
    optimizer.zero_grad()


@several()
def test_zero_grad_while_gradients_are_reduced():
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    x, y = batch(0)
    loss(net, mine(x), mine(y)).backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad()


def test_clipping_with_skip_synchronize():
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    x, y = batch(0)
    loss(net, mine(x), mine(y)).backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    with optimizer.skip_synchronize():
        optimizer.step()
    loss(reference, x, y).backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
    torch.optim.SGD(reference.parameters(), lr=0.1).step()
    assert_same(net, reference)

    optimizer.zero_grad()
    loss(net, mine(x), mine(y)).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        optimizer.step()


@several()
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"op": hvd.Adasum}], ids=str)
def test_a_failed_optimizer_goes_when_it_is_dropped(options):
    """Not when Python collects garbage, at another time on each rank: its hooks would reduce on some ranks only."""
    good = torch.nn.Parameter(torch.ones(3))

    def fail():
        bad = torch.nn.Parameter(torch.ones(2 + hvd.rank()))
        named = [("good", good), ("bad", bad)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([good, bad], lr=0.1), named, **options)
        (good.sum() + bad.sum()).backward()
        try:
            optimizer.step()
        except hvd.HorovodInternalError as e:
            assert '(tensor "bad' in str(e)
            return weakref.ref(optimizer)
        raise AssertionError("the shapes differ")

    gc.collect()
    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()
    named = [("good", good)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([good], lr=0.1), named, **options)
    optimizer.zero_grad()
    good.sum().backward()
    optimizer.step()


@several()
def test_an_optimizer_that_waits_for_garbage_collection_reduces_no_more():
    """The collection comes at another time on each rank."""
    weight = torch.nn.Parameter(torch.ones(3))

    def step():
        return step_of(hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), [("weight", weight)]))

    def step_of(optimizer):
        optimizer.zero_grad()
        (weight.sum() * (1 + hvd.rank())).backward()
        optimizer.step()
        return optimizer

    gc.collect()
    gc.disable()
    try:
        optimizer = step()
        optimizer.cycle, gone = [optimizer], weakref.ref(optimizer)
        held = weakref.ref(optimizer) if hvd.rank() == 0 else optimizer  # rank 0's goes at once
        optimizer = None
        if hvd.rank() == 0:
            gc.collect()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), [("weight", weight)])
        del held
        step_of(optimizer)
        assert gone() is None
        other = step()  # while there is another one, for good
        assert other is not optimizer
    finally:
        gc.enable()
    check = torch.full((3,), 1 - 3 * 0.1 * (hvd.size() + 1) / 2)
    torch.testing.assert_close(weight.detach(), check)


def test_scaled_losses():
    """All ranks leave out a step if one of them overflows."""
    try:
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    except AttributeError:
        pytest.skip("this PyTorch has no torch.amp.GradScaler, which came with 2.3")
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    alone = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(4):
        x, y = batch(step)
        optimizer.zero_grad()
        overflows = step == 1 and hvd.rank() == hvd.size() - 1
        scaler.scale(loss(net, mine(x), mine(y)) * (float("inf") if overflows else 1.0)).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        if step != 1:
            alone.zero_grad()
            loss(reference, x, y).backward()
            alone.step()
    assert_same(net, reference)
    assert scaler.get_scale() == 8


def test_closure():
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(3):
        x, y = batch(step)

        def closure(x=x, y=y):
            optimizer.zero_grad()
            value = loss(net, mine(x), mine(y))
            value.backward()
            return value

        def plain_closure(x=x, y=y):
            plain.zero_grad()
            value = loss(reference, x, y)
            value.backward()
            return value

        assert optimizer.step(closure).item() > 0
        plain.step(plain_closure)
    assert_same(net, reference)


# So few iterations, and so wide a tolerance, that the order of a sum's operands does not decide the result: twenty
# iterations make 4e-5 of a rounding error.
@pytest.mark.parametrize(
    "options",
    [{"line_search_fn": "strong_wolfe", "max_iter": 8}, {"tolerance_change": 0.05}],
    ids=["line search", "tolerance"],
)
def test_lbfgs_decides_by_the_loss_of_all_ranks(options):
    net, reference = model(), model()
    optimizer = torch.optim.LBFGS(net.parameters(), **options)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    plain = torch.optim.LBFGS(reference.parameters(), **options)
    for step in range(3):
        x, y = batch(step)
        calls, plain_calls = [], []

        def closure(x=x, y=y, calls=calls):
            optimizer.zero_grad()
            value = loss(net, mine(x), mine(y))
            value.backward()
            calls.append(value)
            return value

        def plain_closure(x=x, y=y, calls=plain_calls):
            plain.zero_grad()
            value = loss(reference, x, y)
            value.backward()
            calls.append(value)
            return value

        torch.testing.assert_close(optimizer.step(closure), plain.step(plain_closure).detach())
        assert len(calls) == len(plain_calls)
    assert_same(net, reference)


def test_parameters_without_gradient_on_some_ranks():
    a, b = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([a, b, frozen], lr=1.0))
    (a.sum() if hvd.rank() == 0 else b.sum()).backward()
    optimizer.step()
    n = hvd.size()
    torch.testing.assert_close(a.detach(), torch.full((3,), 1 - 1 / n))
    torch.testing.assert_close(b.detach(), torch.full((3,), 1 - (n - 1) / n))
    torch.testing.assert_close(frozen.detach(), torch.ones(3))


def test_other_memory_format():
    net = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    reference = copy.deepcopy(net)
    hvd.broadcast_parameters(net.state_dict(), 0)
    hvd.broadcast_parameters(reference.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(2 * hvd.size(), 3, 8, 8, generator=generator).to(memory_format=torch.channels_last)
    net(images[2 * hvd.rank() : 2 * hvd.rank() + 2]).square().mean().backward()
    optimizer.step()
    reference(images).square().mean().backward()
    torch.optim.SGD(reference.parameters(), lr=0.1).step()
    assert_same(net, reference)


def test_sparse_as_dense():
    net, reference = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Embedding(10, 3)
    with torch.no_grad():
        net.weight.fill_(1.0)
        reference.weight.fill_(1.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), sparse_as_dense=True)
    words = torch.arange(hvd.size() * 2) % 10
    net(words[2 * hvd.rank() : 2 * hvd.rank() + 2]).mean().backward()
    optimizer.step()
    if hvd.size() > 1:
        assert net.weight.grad.is_sparse
    reference(words).mean().backward()
    torch.optim.SGD(reference.parameters(), lr=1.0).step()
    assert_same(net, reference)


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_sparse_gradients(op):
    net, reference = torch.nn.Embedding(10, 3, sparse=True), torch.nn.Embedding(10, 3)
    with torch.no_grad():
        net.weight.fill_(1.0)
        reference.weight.fill_(1.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), op=getattr(hvd, op))
    words = torch.arange(hvd.size() * 2) % 4
    for _ in range(3):
        optimizer.zero_grad()
        net(words[2 * hvd.rank() : 2 * hvd.rank() + 2]).mean().backward()
        optimizer.step()
        assert net.weight.grad.is_sparse
    lr = 1.0 * (hvd.size() if op == "Sum" else 1)
    train_words = torch.optim.SGD(reference.parameters(), lr=lr)
    for _ in range(3):
        train_words.zero_grad()
        reference(words).mean().backward()
        train_words.step()
    assert_same(net, reference)


def grouped_by(net, how):
    first, *others = net.parameters()
    return {"one": 1, "three": 3, "too many": 50, "lists": [[first, others[-1]], [others[0]]], "none": []}[how]


@pytest.mark.parametrize("how", ["one", "three", "too many", "lists", "none"])
@pytest.mark.parametrize("named", [True, False])
def test_groups(how, named):
    """Also with a predivide factor and with compression."""
    for kwargs in ({}, {"gradient_predivide_factor": 2.0}, {"compression": hvd.Compression.fp16}):
        net, reference = model(), model()
        base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(
            base, net.named_parameters() if named else None, groups=grouped_by(net, how), **kwargs
        )
        train(net, optimizer)
        train_alone(reference, torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9))
        tolerance = {"atol": 1e-2, "rtol": 1e-2} if "compression" in kwargs else {}
        assert_same(net, reference, **tolerance)


def test_groups_with_several_passes_and_unused_parameters():
    a, b, c = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    named = [("a", a), ("b", b), ("c", c)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([a, b, c], lr=1.0), named, backward_passes_per_step=2, groups=[[a, b]]
    )
    n = hvd.size()
    for step in range(2):
        for _ in range(2):
            ((a if hvd.rank() == 0 else b) + c).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(a.detach(), torch.full((2,), 1 - 2 * (step + 1) / n))
        torch.testing.assert_close(b.detach(), torch.full((2,), 1 - 2 * (step + 1) * (n - 1) / n))
        torch.testing.assert_close(c.detach(), torch.full((2,), 1 - 2.0 * (step + 1)))


def test_order_of_groups_is_that_of_the_first_rank():
    """Parameters that the ranks list in different orders are still grouped alike."""
    named = [(f"p{i}", torch.nn.Parameter(torch.ones(1 + i))) for i in range(5)]
    if hvd.rank() % 2:
        named.reverse()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=1.0), named, groups=2)
    sum(p.sum() for _, p in named).backward()
    optimizer.step()
    for _, p in named:
        torch.testing.assert_close(p.detach(), torch.zeros_like(p))


def test_sparse_gradients_in_a_group():
    net = torch.nn.ModuleList([torch.nn.Embedding(4, 2, sparse=True), torch.nn.Linear(2, 1)])
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(1.0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), groups=1)
    net[1](net[0](torch.tensor([0]))).sum().backward()
    optimizer.step()
    torch.testing.assert_close(net[0].weight.detach(), torch.tensor([[0.0, 0.0]] + [[1.0, 1.0]] * 3))
    torch.testing.assert_close(net[1].weight.detach(), torch.zeros(1, 2))


@several()
def test_an_error_in_a_group_reaches_step():
    good = torch.nn.Parameter(torch.ones(2))
    bad = torch.nn.Parameter(torch.ones(2 + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([bad, good], lr=1.0), [("bad", bad), ("good", good)], groups=1)
    for _ in range(2):
        (good.sum() + bad.sum()).backward()
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
            optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(hvd.allreduce(torch.ones(2)), torch.ones(2))


def test_scheduler():
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    plain_scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
    for step in range(3):
        train(net, optimizer, 1 + step)
        scheduler.step()
        train_alone(reference, plain, 1 + step)
        plain_scheduler.step()
    assert_same(net, reference)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Min])
@pytest.mark.parametrize("groups", [(None, None), (None, 1), (1, None), (1, 1)])
def test_optimizers_that_share_parameters(op, groups):
    """As with two heads on one encoder: both optimizers reduce the shared gradient, with the same result."""
    shared, mine, yours = (torch.nn.Parameter(torch.zeros(3)) for _ in range(3))
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD([shared, own], lr=1.0), [("shared", shared), ("own", own)], op=op, groups=grouped
        )
        for own, grouped in zip((mine, yours), groups)
    ]
    mean = (hvd.size() + 1) / 2 if op == hvd.Average else 1.0
    for step in range(1, 4):
        ((hvd.rank() + 1) * (shared + mine + yours)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        assert shared.tolist() == [-2 * step * mean] * 3
        assert mine.tolist() == yours.tolist() == [-step * mean] * 3


def test_parameters_that_share_a_gradient():
    one, two = (torch.nn.Parameter(torch.zeros(3)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one, two], lr=1.0))
    one.grad = two.grad = torch.full((3,), hvd.rank() + 1.0)
    optimizer.step()
    assert one.tolist() == two.tolist() == [-(hvd.size() + 1) / 2] * 3


def test_added_parameters_are_reduced():
    a, b = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([a], lr=1.0))
    optimizer.add_param_group({"params": [b]})
    (b * hvd.rank()).sum().backward()
    optimizer.step()
    torch.testing.assert_close(b.detach(), torch.full((2,), 1 - (hvd.size() - 1) / 2))


LATE = {
    "unfrozen": lambda optimizer, layer: layer.requires_grad_(),
    "to a list": lambda optimizer, layer: optimizer.param_groups[0]["params"].extend(
        layer.requires_grad_().parameters()
    ),
    "a new group": lambda optimizer, layer: optimizer.add_param_group(
        {"params": list(layer.requires_grad_().parameters())}
    ),
}


@pytest.mark.parametrize("how", LATE)
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"backward_passes_per_step": 2}, {"op": hvd.Adasum}], ids=str)
def test_parameters_that_are_trained_later(how, options):
    """The optimizer did not watch these parameters when it was made. Their first gradients are reduced all the same."""
    net, reference = model(), model()
    made = []
    for m, distribute in ((net, True), (reference, False)):
        last = m[2].requires_grad_(False)
        known = list(m.parameters()) if how == "unfrozen" else list(m[0].parameters())
        optimizer = torch.optim.SGD(known, lr=0.1, momentum=0.9)
        if distribute:
            names = {p: name for name, p in m.named_parameters()}
            optimizer = hvd.DistributedOptimizer(optimizer, [(names[p], p) for p in known], **options)
        made.append((optimizer, last))
    passes = options.get("backward_passes_per_step", 1)
    for step in range(4):
        if step == 2:
            for optimizer, last in made:
                LATE[how](optimizer, last)
        x, y = batch(step)
        for _ in range(passes):
            loss(net, mine(x), mine(y)).backward()
            loss(reference, x, y).backward()
        for optimizer, _ in made:
            optimizer.step()
            optimizer.zero_grad()
    for p in net.parameters():
        assert len({tuple(q.flatten().tolist()) for q in hvd.allgather_object(p.detach())}) == 1
    if options.get("op") != hvd.Adasum or hvd.size() == 1:
        assert_same(net, reference)


def test_state_goes_over_and_a_wrapped_optimizer_may_be_dropped():
    net, reference = model(), model()
    plain = torch.optim.Adam(reference.parameters())
    train_alone(reference, plain, 3)
    base = torch.optim.Adam(net.parameters())
    train_alone(net, base, 3)
    first = hvd.DistributedOptimizer(base, net.named_parameters())
    del first
    optimizer = hvd.DistributedOptimizer(base, net.named_parameters())
    train(net, optimizer)
    train_alone(reference, plain)
    assert_same(net, reference)


def test_load_state_dict():
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.5), net.named_parameters())
    plain = torch.optim.Adam(reference.parameters())
    train_alone(reference, plain, 2)
    net.load_state_dict(reference.state_dict())
    x, y = batch(0)
    loss(net, mine(x), mine(y)).backward()  # reductions under way
    optimizer.load_state_dict(copy.deepcopy(plain.state_dict()))
    optimizer.zero_grad()
    train(net, optimizer, 2)
    train_alone(reference, plain, 2)
    assert_same(net, reference)


class Scaled:
    """An optimizer in another one, as apex's LARC is: groups and state are those of the optimizer inside."""

    def __init__(self, inside):
        self.inside = inside

    state = property(lambda self: self.inside.state)
    param_groups = property(lambda self: self.inside.param_groups)

    def state_dict(self):
        return self.inside.state_dict()

    def load_state_dict(self, state_dict):
        self.inside.load_state_dict(state_dict)

    def zero_grad(self):
        self.inside.zero_grad()

    def step(self):
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.grad *= p.norm() / p.grad.norm()
        self.inside.step()


def test_load_state_dict_of_an_optimizer_that_holds_another():
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(Scaled(OPTIMIZERS["momentum"](net.parameters())), net.named_parameters())
    plain = Scaled(OPTIMIZERS["momentum"](reference.parameters()))
    train(net, optimizer)
    train_alone(reference, plain)
    saved = copy.deepcopy(optimizer.state_dict())
    train(net, optimizer, steps=1)
    net.load_state_dict(reference.state_dict())
    optimizer.load_state_dict(saved)
    train(net, optimizer)
    train_alone(reference, plain)
    assert_same(net, reference)


def test_an_error_reaches_step_and_training_can_go_on():
    if hvd.size() == 1:
        pytest.skip("with one rank nothing is reduced")
    good = torch.nn.Parameter(torch.ones(2))
    bad = torch.nn.Parameter(torch.ones(2 + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([bad, good], lr=1.0), [("bad", bad), ("good", good)])
    (good.sum() + bad.sum()).backward()
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"):
        optimizer.step()
    optimizer.zero_grad()
    del optimizer
    torch.testing.assert_close(hvd.allreduce(torch.ones(2)), torch.ones(2))


@pytest.mark.skipif(hvd_size() > 1, reason="tests one rank")
def test_adasum_of_one_rank_is_the_optimizer_itself():
    net, reference = model(), model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), net.named_parameters(), op=hvd.Adasum
    )
    train(net, optimizer)
    train_alone(reference, torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9))
    assert_same(net, reference)
    optimizer.synchronize()
    with optimizer.skip_synchronize():  # the variant for several ranks refuses this
        optimizer.step()


def small_problem():
    """Two parameters, and a loss whose gradients are this rank's number plus one."""
    parameters = [torch.zeros(3, requires_grad=True), torch.zeros(2, 2, requires_grad=True)]
    number = hvd.rank() + 1

    def backward():
        sum((p * number).sum() for p in parameters).backward()

    return parameters, backward


def is_usable(optimizer, parameters, backward, op):
    """Check that one step of SGD with a learning rate of 1 gives the expected weights."""
    with torch.no_grad():
        for p in parameters:
            p.zero_()
    optimizer.zero_grad()
    backward()
    optimizer.step()
    numbers = [np.array([float(r + 1)]) for r in range(hvd.size())]
    by = sum(numbers) / hvd.size() if op == hvd.Average else adasum([np.full(1, n) for n in numbers])
    for p in parameters:
        torch.testing.assert_close(p.detach(), torch.full_like(p, -float(by[0])))


@several()
@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
@pytest.mark.parametrize("then", ["step", "init", "init and step", "init and backward"])
def test_shutdown_while_gradients_are_reduced(then, op, groups):
    parameters, backward = small_problem()
    base = torch.optim.SGD(parameters, lr=1.0)
    optimizer = hvd.DistributedOptimizer(base, zip("ab", parameters), op=op, groups=groups)
    is_usable(optimizer, parameters, backward, op)
    optimizer.zero_grad()
    backward()
    hvd.barrier()  # otherwise the first to shut down stops the others' backward
    hvd.shutdown()
    if then == "step":
        with pytest.raises(hvd.HorovodInternalError):
            optimizer.step()
        with pytest.raises(hvd.HorovodInternalError):
            optimizer.step()
    hvd.init()
    if then == "init and step":
        with pytest.raises(hvd.HorovodInternalError, match="shut down"):
            optimizer.step()  # it must not take new operations for the old ones with these numbers
    if then == "init and backward":
        backward()
        optimizer.step()
    for _ in range(2):
        is_usable(optimizer, parameters, backward, op)


class Interrupting:
    """A compressor that raises KeyboardInterrupt once, in its second decompression."""

    def __init__(self):
        self.calls = 0

    def compress(self, tensor):
        return tensor.clone(), None

    def decompress(self, tensor, ctx):
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt
        return tensor


@several()
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_interrupt_in_step(op):
    """The step can be made again."""
    parameters, backward = small_problem()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0), zip("ab", parameters), compression=Interrupting(), op=op
    )
    backward()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    optimizer.step()
    once = [p.detach().clone() for p in parameters]
    is_usable(optimizer, parameters, backward, op)
    for p, q in zip(parameters, once):
        assert torch.equal(p.detach(), q)


@several()
def test_shutdown_before_backward():
    parameters, backward = small_problem()
    base = torch.optim.SGD(parameters, lr=1.0)
    optimizer = hvd.DistributedOptimizer(base, zip("ab", parameters))
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError):
        backward()
    hvd.init()
    is_usable(optimizer, parameters, backward, hvd.Average)


@several()
def test_shutdown_while_a_sparse_sum_is_under_way():
    with pytest.raises(hvd.HorovodInternalError):
        wait = hvd.sparse_allreduce_async(torch.eye(3).to_sparse(), "lost", hvd.Sum)  # fails if another rank was faster
        hvd.shutdown()
        wait()
    hvd.shutdown()
    hvd.init()


@several()
def test_result_of_what_was_lost_before_another_init():
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    wait = hvd.sparse_allreduce_async(torch.eye(3).to_sparse(), "lost", hvd.Sum)
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    handles = [hvd.allreduce_async(torch.ones(2), name=f"new.{i}", op=hvd.Sum) for i in range(2)]
    assert handles == [1, 2]  # as those of the indices and the values were
    with pytest.raises(hvd.HorovodInternalError, match="shut down"):
        wait()
    for handle in handles:
        assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2


def test_argument_errors():
    net = model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    named = list(net.named_parameters())

    def wrap(named_parameters=None, **kwargs):
        return hvd.DistributedOptimizer(sgd, named_parameters, **kwargs)

    with pytest.raises(ValueError, match="backward_passes_per_step must be > 0"):
        wrap(backward_passes_per_step=0)
    with pytest.raises(ValueError, match="gradient_predivide_factor not supported with op != Average"):
        wrap(gradient_predivide_factor=2.0, op=hvd.Sum)
    with pytest.raises(ValueError, match="should be a sequence of tuples"):
        wrap(net.parameters())
    with pytest.raises(ValueError, match=r"must be unique. Found duplicates: 0\.weight"):
        wrap([*named, named[0]])
    with pytest.raises(ValueError, match="one or more model parameters were not named"):
        wrap(named[1:])
    for groups in (0, -1, "two", 1.5):
        with pytest.raises(ValueError, match="groups should be a non-negative integer or a list"):
            wrap(groups=groups)
    w = named[0][1]
    for groups, match in [
        ([[w, 3]], "lists of torch.Tensor"),
        ([w], "lists of torch.Tensor"),
        ([[w], [w]], "only appear once"),
        ([[torch.ones(1)]], "not a parameter"),
    ]:
        with pytest.raises(ValueError, match=match):
            wrap(groups=groups)
    with pytest.deprecated_call():
        wrap(num_groups=2)
    with pytest.raises(NotImplementedError, match="Adasum does not support non-global process sets yet"):
        wrap(op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    with pytest.raises(ValueError, match="DistributedOptimizer already"):
        hvd.DistributedOptimizer(wrap())
    with pytest.raises(ValueError, match="backward_passes_per_step must be > 0"):
        wrap().set_backward_passes_per_step(0)


# ---- making ranks equal


def test_broadcast_parameters():
    for root in range(hvd.size()):
        for form in (lambda net: net.state_dict(), lambda net: list(net.named_parameters())):
            net = model(seed=hvd.rank())
            hvd.broadcast_parameters(form(net), root)
            assert_same(net, model(seed=root), rtol=0, atol=0)
    bare = [torch.full((3,), float(hvd.rank())), torch.full((2,), hvd.rank())]
    hvd.broadcast_parameters(bare, hvd.size() - 1)
    assert [t.tolist() for t in bare] == [[float(hvd.size() - 1)] * 3, [hvd.size() - 1] * 2]
    norm = torch.nn.BatchNorm1d(3)
    norm.num_batches_tracked.fill_(hvd.rank())
    hvd.broadcast_parameters(norm.state_dict(), hvd.size() - 1)
    assert norm.num_batches_tracked.item() == hvd.size() - 1


def test_broadcast_parameters_errors():
    net = model()
    for bad in (net.named_parameters(), net.parameters(), None, 3):
        with pytest.raises(ValueError, match="invalid params of type"):
            hvd.broadcast_parameters(bad, 0)
    with pytest.raises(ValueError, match="not a tensor"):
        hvd.broadcast_parameters({"a": 1.0}, 0)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("wrapped", [True, False])
def test_broadcast_optimizer_state(name, wrapped):
    """Only the root has trained; after the broadcast all go on as it does."""
    root = hvd.size() - 1
    net, reference = model(), model()
    optimizer = OPTIMIZERS[name](net.parameters())
    plain = OPTIMIZERS[name](reference.parameters())
    train_alone(reference, plain, 3)
    if hvd.rank() == root:
        train_alone(net, optimizer, 3)
        optimizer.param_groups[0]["lr"] *= 0.5
    plain.param_groups[0]["lr"] *= 0.5
    optimizer.param_groups[0].setdefault("extra", {"of": [hvd.rank(), "any kind"]})
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root, model=net)
    assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    assert optimizer.param_groups[0]["extra"] == {"of": [root, "any kind"]}
    for p, q in zip(net.parameters(), reference.parameters()):
        mine_, theirs = optimizer.state.get(p, {}), plain.state.get(q, {})
        assert mine_.keys() == theirs.keys()
        for key in theirs:
            assert type(mine_[key]) is type(theirs[key])
            if isinstance(theirs[key], torch.Tensor):
                torch.testing.assert_close(mine_[key], theirs[key])
            else:
                assert mine_[key] == theirs[key]
    (train if wrapped else train_alone)(net, optimizer, 2)
    train_alone(reference, plain, 2)
    assert_same(net, reference)


def every_class():
    """Every optimizer class of this PyTorch except LBFGS, which is refused."""
    classes = {n: c for n, c in vars(torch.optim).items() if isinstance(c, type) and n not in ("Optimizer", "LBFGS")}
    return {n: c for n, c in sorted(classes.items()) if issubclass(c, torch.optim.Optimizer)}


@pytest.mark.parametrize("name", every_class())
def test_broadcast_state_of_every_optimizer(name):
    """The others have trained for another number of steps, or not at all, and with other options."""
    cls, root = every_class()[name], hvd.size() - 1

    def made(seed):
        torch.manual_seed(seed)
        if name == "SparseAdam":
            net = torch.nn.Embedding(6, 4, sparse=True)
        else:  # Muon takes matrices only
            net = torch.nn.Linear(6, 4, bias=False)
        return net, cls(net.parameters(), lr=0.01 * (1 + seed))

    def one_step(net, optimizer):
        optimizer.zero_grad()
        x = torch.tensor([1, 4, 1]) if name == "SparseAdam" else torch.arange(12.0).view(2, 6)
        net(x).square().sum().backward()
        optimizer.step()

    net, optimizer = made(hvd.rank())
    for _ in range(hvd.rank() + (hvd.size() == 1)):
        one_step(net, optimizer)
    reference, plain = made(root)
    for _ in range(root + (hvd.size() == 1)):
        one_step(reference, plain)
    hvd.broadcast_parameters(net.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root, model=net)

    def flat(state):
        return [(k, v) for s in state["state"].values() for k, v in sorted(s.items())]

    assert optimizer.state_dict()["param_groups"] == plain.state_dict()["param_groups"]
    for (key, value), (expected_key, expected) in zip(flat(optimizer.state_dict()), flat(plain.state_dict())):
        assert key == expected_key and type(value) is type(expected)
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
    assert len(flat(optimizer.state_dict())) == len(flat(plain.state_dict()))
    for _ in range(2):
        one_step(net, optimizer)
        one_step(reference, plain)
    assert_same(net, reference)


def test_broadcast_optimizer_state_of_a_fresh_root_empties_the_others():
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1 * (1 + hvd.rank()))
    before = copy.deepcopy(net)
    if hvd.rank() != 0:
        train_alone(net, optimizer, 1)
        net.load_state_dict(before.state_dict())
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert not any(optimizer.state.values())
    assert_same(net, before, rtol=0, atol=0)  # no step was run


def test_broadcast_optimizer_state_leaves_zero_gradients_where_there_is_no_state():
    net = model()
    frozen, *rest = net.parameters()
    frozen.requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters())
    if hvd.rank() != 0:  # one that has state keeps its gradients
        train_alone(net, optimizer, 1)
    kept = [None if p.grad is None else p.grad.clone() for p in rest]
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert frozen.grad is None
    for p, before in zip(rest, kept):
        torch.testing.assert_close(p.grad, torch.zeros_like(p) if hvd.rank() == 0 else before)


@pytest.mark.parametrize("layer", [torch.nn.Embedding, torch.nn.EmbeddingBag])
@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.SGD])
def test_zero_gradients_of_sparse_layers_are_sparse(layer, optimizer):
    """The first backward adds to the zero gradients, and the sum must be sparse as the layer's own gradients are."""
    net = layer(5, 3, sparse=True)
    plain = optimizer(net.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(plain, 0, model=net)
    assert net.weight.grad.is_sparse and net.weight.grad.to_dense().eq(0).all()
    net(torch.tensor([[1, 3]])).sum().backward()
    assert net.weight.grad.is_sparse and net.weight.grad.coalesce().indices().tolist() == [[1, 3]]
    plain.step()


def test_broadcast_optimizer_state_refuses_lbfgs():
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(model().parameters()), 0)


def test_broadcast_object_fn():
    from_last = hvd.broadcast_object_fn(hvd.size() - 1, "last")
    for i in range(3):
        assert from_last({"rank": hvd.rank(), "i": i}) == {"rank": hvd.size() - 1, "i": i}


def test_broadcast_object():
    for root in range(hvd.size()):
        thing = {"rank": hvd.rank(), "big": "x" * 100_000, "f": lambda: 7}
        result = hvd.broadcast_object(thing if hvd.rank() == root else None, root)
        assert result["rank"] == root
        assert result["f"]() == 7
        assert (result is thing) == (hvd.rank() == root)
    assert hvd.broadcast_object([1], name="named") == [1]


def test_allgather_object():
    result = hvd.allgather_object(("x" * hvd.rank(), {hvd.rank()}))
    assert result == [("x" * r, {r}) for r in range(hvd.size())]
    assert hvd.allgather_object(None, name="named") == [None] * hvd.size()


def test_told_from_the_own_optimizer():
    """Programs look for Horovod's ``_allreduce_grad_async``, and may call it for a parameter that backward left out."""
    net = torch.nn.Linear(2, 1)
    own = torch.optim.SGD(net.parameters(), lr=1.0)
    assert not hasattr(own, "_allreduce_grad_async")
    optimizer = hvd.DistributedOptimizer(own, named_parameters=net.named_parameters())
    for p in net.parameters():
        p.grad = torch.full_like(p, hvd.rank())
        optimizer._allreduce_grad_async(p)
    optimizer.synchronize()
    for p in net.parameters():
        torch.testing.assert_close(p.grad, torch.full_like(p, (hvd.size() - 1) / 2))


def test_parameter_names_by_parameter():
    """As programs look them up in Horovod."""
    net = model()
    named = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
    assert named._parameter_names == {p: name for name, p in net.named_parameters()}
    bare = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1))
    assert [bare._parameter_names[p] for p in net.parameters()] == [
        f"allreduce.noname.0.{i}" for i, _ in enumerate(net.parameters())
    ]


SCHEDULERS = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.5),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=20),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "ReduceLROnPlateau": lambda o: Plateau(o, factor=0.5, patience=0),
}


class Plateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
    def step(self):
        super().step(1.0)


@pytest.mark.parametrize("options", [{}, {"op": hvd.Adasum}, {"groups": 1}], ids=str)
@pytest.mark.parametrize("loaded", ["its own", "of a pickle", "of the unwrapped one", "through an elastic state"])
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:Detected call of", "ignore:Seems like")
def test_a_scheduler_made_before_wrapping_drives_on_after_load_state_dict(name, loaded, options):
    net, reference = model(), model()
    rates = []
    for m, distribute in ((net, True), (reference, False)):
        optimizer = base = torch.optim.SGD(
            [{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.25}], lr=1.0, momentum=0.5
        )
        scheduler = SCHEDULERS[name](base)
        if distribute:
            optimizer = hvd.DistributedOptimizer(base, m.named_parameters(), **options)
        train_alone(m, base, 1)
        for _ in range(2):
            scheduler.step()
        if loaded == "through an elastic state" and distribute:
            state = hvd.elastic.TorchState(optimizer=optimizer)
            state.restore()
            state.sync()
        else:
            saved = (base if loaded == "of the unwrapped one" else optimizer).state_dict()
            optimizer.load_state_dict(pickle.loads(pickle.dumps(saved)) if loaded == "of a pickle" else saved)
        scheduler.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
        assert optimizer.param_groups is base.param_groups or not distribute
        assert optimizer.state is base.state or not distribute
    assert rates[0] == rates[1]


@pytest.mark.parametrize("options", [{}, {"op": hvd.Adasum}], ids=str)
def test_a_scheduler_made_before_wrapping_knows_of_the_steps(options):
    """It warns if it steps before the optimizer, and only then."""
    for steps_first in (True, False):
        net = model()
        base = torch.optim.SGD(net.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.StepLR(base, 1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(base, net.named_parameters(), **options)
        if steps_first:
            train(net, optimizer, 1)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            scheduler.step()
        assert [("before `optimizer.step()`" in str(w.message)) for w in seen] == [True] * (not steps_first)
        assert optimizer.param_groups[0]["lr"] == 0.25


def test_loading_leaves_the_groups_alone_if_they_do_not_fit():
    net = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.5))
    before = optimizer.state_dict()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict({**before, "param_groups": []})
    assert optimizer.state_dict() == before
