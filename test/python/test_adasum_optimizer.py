"""DistributedOptimizer(op=Adasum) against a model of all ranks: each makes its own step, and the steps are combined."""

import warnings

import numpy as np
import pytest
import torch
from definitions import adasum, several

import horovod.torch as hvd

pytestmark = [pytest.mark.usefixtures("job"), several()]

ROWS, STEPS, RATE, MOMENTUM = 5, 6, 0.05, 0.9


def data(rank, step):
    """Inputs and targets of a rank's batch."""
    generator = np.random.default_rng(100 * rank + step)
    return generator.normal(size=(ROWS, 4)), generator.normal(size=(ROWS, 2))


def start():
    generator = np.random.default_rng(1)
    return [generator.normal(size=(4, 3)), generator.normal(size=(3, 2))]


def gradients(weights, batches):
    """The gradients of the sum over ``batches`` of the mean squares of x w0 w1 - y."""
    total = [np.zeros_like(w) for w in weights]
    for x, y in batches:
        hidden = x @ weights[0]
        error = 2 * (hidden @ weights[1] - y) / y.size
        total[0] += x.T @ (error @ weights[1].T)
        total[1] += hidden.T @ error
    return total


def expected(passes=1, rate=lambda step: RATE):
    """The weights after all steps, in numpy: SGD with momentum, whose state is each rank's own."""
    weights, size = start(), hvd.size()
    velocity = [[np.zeros_like(w) for w in weights] for _ in range(size)]
    for step in range(STEPS):
        deltas = []
        for rank in range(size):
            grads = gradients(weights, [data(rank, passes * step + i) for i in range(passes)])
            for v, g in zip(velocity[rank], grads):
                v *= MOMENTUM
                v += g
            deltas.append([-rate(step) * v for v in velocity[rank]])
        weights = [w + adasum([delta[i] for delta in deltas]) for i, w in enumerate(weights)]
    return weights


def network():
    return [torch.tensor(w, requires_grad=True) for w in start()]


def loss(weights, batch):
    x, y = map(torch.from_numpy, batch)
    return ((x @ weights[0] @ weights[1] - y) ** 2).mean()


def wrapped(weights, **kwargs):
    base = torch.optim.SGD(weights, lr=RATE, momentum=MOMENTUM)
    return hvd.DistributedOptimizer(base, [(f"w{i}", w) for i, w in enumerate(weights)], op=hvd.Adasum, **kwargs)


def assert_equal(weights, reference, **tolerance):
    for w, r in zip(weights, reference):
        torch.testing.assert_close(w.detach(), torch.from_numpy(r), **tolerance)
        everyone = hvd.allgather(w.detach()[None])
        assert bool((everyone == everyone[0]).all())


def test_the_models_gradients():
    weights = network()
    loss(weights, data(0, 0)).backward()
    for w, g in zip(weights, gradients(start(), [data(0, 0)])):
        torch.testing.assert_close(w.grad, torch.from_numpy(g))


@pytest.mark.parametrize("ignored", [{}, {"groups": 1, "sparse_as_dense": True}], ids=["", "ignored"])
def test_sgd_with_momentum(ignored):
    weights = network()
    optimizer = wrapped(weights, **ignored)
    assert isinstance(optimizer, torch.optim.SGD)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(weights, data(hvd.rank(), step)).backward()
        optimizer.synchronize()  # does nothing
        assert optimizer.step() is None
    assert_equal(weights, expected())


def test_the_steps_differ_from_those_of_an_average():
    averaged = network()
    optimizer = torch.optim.SGD(averaged, lr=RATE, momentum=MOMENTUM)
    for step in range(STEPS):
        optimizer.zero_grad()
        (sum(loss(averaged, data(r, step)) for r in range(hvd.size())) / hvd.size()).backward()
        optimizer.step()
    assert float((averaged[0].detach() - torch.from_numpy(expected()[0])).abs().max()) > 1e-3


@pytest.mark.parametrize("before_all", [False, True])
def test_several_backward_passes(before_all):
    """Gradients add up on each rank; a step before all passes takes what there is."""
    weights = network()
    optimizer = wrapped(weights, backward_passes_per_step=3 if before_all else 2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for i in range(2):
            loss(weights, data(hvd.rank(), 2 * step + i)).backward()
        optimizer.step()
    assert_equal(weights, expected(passes=2))


def test_too_many_backward_passes():
    weights = network()
    optimizer = wrapped(weights)
    loss(weights, data(0, 0)).backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        loss(weights, data(0, 0)).backward()
    optimizer.step()


def test_scheduler_and_closure():
    weights = network()
    optimizer = wrapped(weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        for step in range(STEPS):

            def closure(step=step):
                optimizer.zero_grad()
                result = loss(weights, data(hvd.rank(), step))
                result.backward()
                return result

            assert float(optimizer.step(closure).detach()) > 0
            scheduler.step()
    assert_equal(weights, expected(rate=lambda step: RATE * 0.5 ** (step // 2)))


def test_weights_stay_as_they_are_until_step():
    weights = network()
    optimizer = wrapped(weights)
    loss(weights, data(hvd.rank(), 0)).backward()
    for w, before in zip(weights, start()):
        assert torch.equal(w.detach(), torch.from_numpy(before))
    with pytest.raises(AssertionError, match="before optimizer.step"):
        optimizer.zero_grad()
    optimizer.step()
    with pytest.raises(AssertionError, match="Skipping synchronization is not supported"):
        with optimizer.skip_synchronize():
            pass


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_other_optimizers(make):
    """The reference has one optimizer per rank; all of them start every step from the same weights."""
    size = hvd.size()
    weights = network()
    optimizer = hvd.DistributedOptimizer(make(weights, lr=RATE), op=hvd.Adasum)  # without names
    ranks = [network() for _ in range(size)]
    theirs = [make(r, lr=RATE) for r in ranks]
    for step in range(STEPS):
        before = [w.detach().clone() for w in ranks[0]]
        for rank in range(size):
            theirs[rank].zero_grad()
            loss(ranks[rank], data(rank, step)).backward()
            theirs[rank].step()
        for i, w in enumerate(before):
            combined = w.numpy() + adasum([(ranks[rank][i].detach() - w).numpy() for rank in range(size)])
            for rank in range(size):
                ranks[rank][i].data.copy_(torch.from_numpy(combined))
        optimizer.zero_grad()
        loss(weights, data(hvd.rank(), step)).backward()
        optimizer.step()
    assert_equal(weights, [w.detach().numpy() for w in ranks[0]])


def test_compression():
    weights = network()
    optimizer = wrapped(weights, compression=hvd.Compression.fp16)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(weights, data(hvd.rank(), step)).backward()
        optimizer.step()
    assert weights[0].dtype is torch.float64
    assert_equal(weights, expected(), rtol=0.02, atol=0.02)


def test_a_parameter_without_gradient_on_some_ranks():
    """Its delta is zero there, which is orthogonal to all."""
    used, other = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    base = torch.optim.SGD([{"params": [used]}, {"params": [other]}], lr=1.0)
    optimizer = hvd.DistributedOptimizer(base, [("used", used), ("other", other)], op=hvd.Adasum)
    (used.sum() + (other.sum() if hvd.rank() == 0 else 0)).backward()
    optimizer.step()
    torch.testing.assert_close(used.detach(), -torch.ones(3))
    torch.testing.assert_close(other.detach(), -torch.ones(3))
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]


def test_an_error_reaches_step_and_changes_nothing():
    weights = network()
    optimizer = wrapped(weights)
    odd = torch.zeros(3 + hvd.rank(), requires_grad=True)
    optimizer.add_param_group({"params": [odd]})
    (loss(weights, data(hvd.rank(), 0)) + odd.sum()).backward()
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched ADASUM tensor shapes"):
        optimizer.step()
    for w, before in zip(weights, start()):
        assert torch.equal(w.detach(), torch.from_numpy(before))
    optimizer.zero_grad()


def test_load_state_dict():
    weights = network()
    optimizer = wrapped(weights)
    state = optimizer.state_dict()
    loss(weights, data(hvd.rank(), 3)).backward()
    optimizer.load_state_dict(state)  # drops the deltas
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(weights, data(hvd.rank(), step)).backward()
        optimizer.step()
    assert_equal(weights, expected())


def test_lbfgs_is_refused():
    with pytest.raises(ValueError, match="LBFGS cannot"):
        hvd.DistributedOptimizer(torch.optim.LBFGS(network()), op=hvd.Adasum)
