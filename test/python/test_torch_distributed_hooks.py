"""PyTorch's own communication hooks with several buckets: as one process, or as over Gloo."""

import contextlib
import datetime
import random
import time
import types

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks as overlap
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local_sgd
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim.functional_sgd import _FunctionalSGD

import horovod.torch.distributed  # noqa: F401

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
BATCH, STEPS = 8, 10
SGD = {"lr": 0.1, "momentum": 0.9}


@pytest.fixture(scope="module", autouse=True)
def groups():
    torch.set_num_threads(1)
    dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=60))
    yield
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def gloo(groups):
    return dist.new_group(backend="gloo")


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 4096)


@pytest.fixture
def pause():
    """Now and then, and on each rank at other times, let callbacks run before the program goes on."""
    own = random.Random(dist.get_rank())
    return lambda: own.random() < 0.5 and time.sleep(0.02)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(6)])


def batch(step, ranks):
    """What these ranks feed in a step, one after the other."""
    generators = [torch.Generator().manual_seed(1000 * step + rank) for rank in ranks]
    return torch.cat([torch.randn(BATCH, 32, generator=generator) for generator in generators])


def backward(model, step, ranks):
    model(batch(step, ranks)).pow(2).mean().backward()


def distributed(net, group=None, state=None, hook=None, seen=lambda bucket, future: None):
    """``net`` under DDP with several buckets, whose hook tells ``seen`` of each bucket."""
    model = torch.nn.parallel.DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.004)

    def followed(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = hook(state, bucket)
        buckets.add(bucket.index())
        seen(bucket, future)
        return future

    buckets = set()
    if hook is not None:
        model.register_comm_hook(state, followed)
    model.buckets = buckets
    return model


def gradients(model):
    """Of each step."""
    steps = []
    for step in range(STEPS):
        model.zero_grad()
        backward(model, step, [dist.get_rank()])
        steps.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert len(model.buckets) >= 5
    return torch.stack(steps)


def weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def alike(tensor):
    """Check that all ranks have the same bits."""
    everybody = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, tensor)
    assert all(torch.equal(other, tensor) for other in everybody)


def trained_alone():
    """The weights that one process has after all steps with the batches of all ranks."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), **SGD)
    for step in range(STEPS):
        optimizer.zero_grad()
        backward(net, step, range(dist.get_world_size()))
        optimizer.step()
    return weights(net)


@pytest.mark.parametrize("hook", ["powerSGD_hook", "batched_powerSGD_hook"])
def test_powersgd(gloo, monkeypatch, pause, hook):
    """Over Gloo one bucket waits for the other: there several get mixed up."""
    orthogonalize = powersgd._orthogonalize
    # The batched hook passes one matrix, where the function wants several: PyTorch 1.13 to 2.15 refuse its own.
    monkeypatch.setattr(
        powersgd, "_orthogonalize", lambda m, *more: orthogonalize(m.unsqueeze(0) if m.dim() == 2 else m, *more)
    )

    def of(group, seen):
        state = powersgd.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2)
        return gradients(distributed(network(), group, state, getattr(powersgd, hook), seen))

    ours, theirs = of(dist.group.WORLD, lambda *_: pause()), of(gloo, lambda _, future: future.wait())
    alike(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("hook", ["quantization_pertensor_hook", "quantization_perchannel_hook"])
def test_quantization(pause, hook):
    """The mean of gradients, each of which is off by half a step of its 8 bits."""
    n, errors = dist.get_world_size(), {}

    def seen(bucket, future):
        every = [torch.empty_like(bucket.buffer()) for _ in range(n)]
        dist.all_gather(every, bucket.buffer())
        pause()
        if future is not None:
            error = (future.wait() - sum(every) / n).abs().max()
            errors[bucket.index()] = (error / sum((g.max() - g.min()) / 255 for g in every) * n).item()

    model = distributed(network(), None, dist.group.WORLD, getattr(quantization, hook), seen)
    if VERSION < (2, 6):  # over every backend
        with pytest.raises(RuntimeError, match="Invalid device, must be cuda device"):
            gradients(model)
        return
    alike(gradients(model))
    assert len(errors) >= 5
    assert max(errors.values()) < 1.01, errors


@pytest.mark.parametrize("within", [True, False])
def test_post_local_sgd(pause, within):
    """After three steps gradients are averaged within half the ranks, or not at all, and every second step weights."""
    n, rank, start = dist.get_world_size(), dist.get_rank(), 3
    halves = [[r for r in range(n) if r % 2 == part] for part in range(min(n, 2))]
    half = [dist.new_group(ranks) for ranks in halves][rank % 2]
    state = local_sgd.PostLocalSGDState(dist.group.WORLD, half, start, post_local_gradient_allreduce=within)
    net = network()
    model = distributed(net, None, state, local_sgd.post_localSGD_hook, lambda *_: pause())
    optimizer = torch.optim.SGD(net.parameters(), **SGD)
    averager = PeriodicModelAverager(period=2, warmup_steps=start)

    alone = [network() for _ in range(n)]  # the nets of all ranks, in one process
    optimizers = [torch.optim.SGD(other.parameters(), **SGD) for other in alone]
    for step in range(STEPS):
        optimizer.zero_grad()
        backward(model, step, [rank])
        optimizer.step()
        averager.average_parameters(net.parameters())
        for r, other in enumerate(alone):
            optimizers[r].zero_grad()
            backward(other, step, range(n) if step < start else halves[r % 2] if within else [r])
            optimizers[r].step()
        if step >= start and (step - start) % 2 == 0:
            for several in zip(*(other.parameters() for other in alone)):
                mean = sum(p.detach() for p in several) / n
                for p in several:
                    p.data.copy_(mean)
        torch.testing.assert_close(weights(net), weights(alone[rank]), rtol=1e-4, atol=1e-5)


def test_optimizer_after_the_hook(pause):
    """The optimizer's step is a callback of each bucket's future."""
    net = network()
    state = overlap._OptimizerHookState(_FunctionalSGD([], **SGD, _allow_empty_param_list=True), net.parameters())
    hook = overlap._hook_then_optimizer(allreduce_hook, state)
    model = distributed(net, None, dist.group.WORLD, hook, lambda *_: pause())
    gradients(model)
    alike(weights(net))
    torch.testing.assert_close(weights(net), trained_alone(), rtol=1e-4, atol=1e-5)


class NoStream(contextlib.nullcontext):
    """PyTorch wants a GPU's stream for optimizers in the backward pass, over every backend."""

    def wait_stream(self, _):
        pass


@pytest.mark.skipif(not hasattr(overlap, "_apply_optim_in_backward_hook"), reason="needs PyTorch 2.1")
@pytest.mark.parametrize("views", [True, False])
def test_optimizer_in_backward(monkeypatch, views):
    from torch.distributed.optim import _apply_optimizer_in_backward

    if not torch.cuda.is_available():
        monkeypatch.setattr(torch, "Stream", NoStream)
        monkeypatch.setattr(torch, "get_device_module", lambda: types.SimpleNamespace(stream=contextlib.nullcontext))
        monkeypatch.setattr(torch.accelerator, "current_stream", NoStream)
    net = network()
    _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), SGD)
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.004, gradient_as_bucket_view=views)
    for step in range(STEPS):
        backward(model, step, [dist.get_rank()])
    alike(weights(net))
    torch.testing.assert_close(weights(net), trained_alone(), rtol=1e-4, atol=1e-5)
