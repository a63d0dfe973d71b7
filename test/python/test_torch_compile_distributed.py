"""torch.compile around models over the backend of torch.distributed: weights as those of one plain process."""

import datetime
import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from definitions import several

import horovod.torch as hvd
from horovod.torch.distributed import CompressedState, allreduce_hook, compressed_hook

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
pytestmark = pytest.mark.skipif(VERSION < (2, 4), reason=f"PyTorch {torch.__version__}: docs/torch_compile.md has 2.4")
STEPS, ROWS = 4, 6


@pytest.fixture(scope="module", autouse=True)
def groups():
    torch.set_num_threads(1)
    dist.init_process_group("gorovod", timeout=datetime.timedelta(seconds=120))
    yield
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def fresh(groups):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def inductor_works():
    try:
        from torch.utils.cpp_extension import include_paths
    except ImportError:  # it needs setuptools
        return False
    headers = [Path(folder) / "ATen" / "NumericUtils.h" for folder in ["/usr/include", *include_paths()]]
    return shutil.which("g++") is not None and any(header.exists() for header in headers)


def traced():
    """The functions of ours that the compiler has traced."""
    codes = (code() for code in torch._dynamo.convert_frame.input_codes.seen)
    return sorted(
        f"{Path(code.co_filename).name}: {code.co_name}"
        for code in codes
        if code is not None and Path(code.co_filename).is_relative_to(Path(hvd.__file__).parent.parent)
    )


class Net(torch.nn.Module):
    """The gradients are more than one of DistributedDataParallel's buckets, of 1 MiB at least.

    The compiler leaves the forward of PyTorch's own containers alone where DistributedDataParallel calls it.
    """

    def __init__(self, norm):
        super().__init__()
        self.first = torch.nn.Linear(6, 512)
        self.norm = torch.nn.BatchNorm1d(512) if norm else torch.nn.Identity()
        self.second = torch.nn.Linear(512, 512)
        self.last = torch.nn.Linear(512, 2)

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x)).relu()).tanh())


def net(norm=False):
    torch.manual_seed(3)
    return Net(norm)


def batches():
    """For each step, the batches of all ranks."""
    return torch.randn(STEPS, dist.get_world_size(), ROWS, 6, generator=torch.Generator().manual_seed(1))


def loss_of(model, batch):
    return model(batch).pow(2).mean()


def one_process(norm=False):
    """A model trained on the batches of all ranks without communication; its buffers are those of rank 0's batches."""
    model = net(norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for of_ranks in batches():
        optimizer.zero_grad()
        loss = loss_of(model, of_ranks[0])
        of_rank_0 = [b.clone() for b in model.buffers()]
        loss = loss + sum(loss_of(model, batch) for batch in of_ranks[1:])
        (loss / len(of_ranks)).backward()
        optimizer.step()
        for buffer, value in zip(model.buffers(), of_rank_0):
            buffer.copy_(value)
    return model


def train(model, forward, batches, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(forward, batch).backward()
        optimizer.step()


def mine():
    return batches()[:, dist.get_rank()]


def check(model, expected, tolerance=1e-5):
    for (name, got), value in zip(model.state_dict().items(), expected.state_dict().values()):
        if hasattr(got, "full_tensor"):
            got = got.full_tensor()
        torch.testing.assert_close(got, value, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: name + text)
    check_compiled()


def check_compiled():
    """The compiler has made graphs, and none of our own code."""
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert traced() == []


def ddp(model, hook=None, state=None, **options):
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1, **options)
    if hook is not None:
        model.register_comm_hook(state, hook)
    return model


def fp16_hook():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return fp16_compress_hook


DDP = {
    "plain": {},
    "BatchNorm": {"norm": True},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "bucket views": {"gradient_as_bucket_view": True},
    "fp16 hook": {"hook": fp16_hook},
    "allreduce_hook": {"hook": lambda: allreduce_hook},
    "compressed_hook": {"hook": lambda: compressed_hook},
    "compressor of Python": {"hook": lambda: compressed_hook, "state": CompressedState(hvd.Compression.none)},
}


@pytest.mark.parametrize("case", DDP)
@pytest.mark.parametrize("inside", [False, True], ids=["compile(DDP)", "DDP(compile)"])
def test_ddp(case, inside):
    options = dict(DDP[case])
    norm, hook = options.pop("norm", False), options.pop("hook", None)
    model = net(norm)
    if inside:
        forward = ddp(torch.compile(model, backend="aot_eager"), hook and hook(), **options)
    else:
        forward = torch.compile(ddp(model, hook and hook(), **options), backend="aot_eager")
    train(model, forward, mine())
    rounded = case == "fp16 hook" or case == "compressed_hook"
    if norm:  # DDP gives rank 0's buffers to the others before each step, and none after the last one
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
    check(model, one_process(norm), 1e-2 if rounded else 1e-5)


@pytest.mark.longest(600)
@pytest.mark.parametrize("what", ["model", pytest.param("step", marks=pytest.mark.long)])
def test_ddp_with_inductor(what):
    if not inductor_works():
        pytest.skip("inductor, PyTorch's own backend, needs g++, setuptools and PyTorch's headers (libtorch-dev)")
    model = net()
    wrapped = ddp(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if what == "model":
        train(model, torch.compile(wrapped), mine(), optimizer)
    else:

        @torch.compile
        def step(batch):
            optimizer.zero_grad()
            loss_of(wrapped, batch).backward()
            optimizer.step()

        for batch in mine():
            step(batch)
    check(model, one_process())


@pytest.mark.parametrize("how", ["ddp_optimizer", "python_reducer", "no_optimization"])
def test_ways_to_compile_ddp(how):
    """PyTorch's ways to treat DistributedDataParallel in a graph (``torch._dynamo.config.optimize_ddp``)."""
    model = net()
    with torch._dynamo.config.patch(optimize_ddp=how, compiled_autograd=how == "python_reducer"):
        train(model, torch.compile(ddp(model), backend="aot_eager"), mine())
    check(model, one_process())


def test_the_compilers_own_group():
    """The compiler may compare decisions of the ranks over a group of Gloo, with the time-out of the default group."""
    get_group = getattr(pytest.importorskip("torch._dynamo.distributed"), "get_compile_sync_pg", None)
    if get_group is None:
        pytest.skip("this PyTorch's compiler makes no such group")
    assert dist.get_backend(get_group()) == "gloo"


@several()
def test_fsdp2():
    if not hasattr(torch.cpu.Stream, "record_event"):
        pytest.skip("fully_shard of this PyTorch is for accelerators only")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = net()
    for layer in (model.first, model.second, model.last, model):
        fsdp.fully_shard(layer, mesh=mesh)
    train(model, torch.compile(model, backend="aot_eager"), mine())
    check(model, one_process())


@several()
@pytest.mark.longest(600)
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_tensor_parallel(backend):
    if VERSION < (2, 5):
        pytest.skip("DTensor is public from PyTorch 2.5 on")
    if backend == "inductor" and not inductor_works():
        pytest.skip("inductor, PyTorch's own backend, needs g++, setuptools and PyTorch's headers (libtorch-dev)")
    parallel = pytest.importorskip("torch.distributed.tensor.parallel")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"first": parallel.ColwiseParallel(), "second": parallel.RowwiseParallel()}
    model = parallel.parallelize_module(net(), mesh, plan)
    compiled = torch.compile(model, backend=backend)
    everything = [batch.flatten(0, 1) for batch in batches()]
    train(model, compiled, everything)
    check(model, one_process())


def test_distributed_optimizer_beside():
    """Horovod's own optimizer in a program that has groups, too."""
    model = net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
    )
    train(model, torch.compile(model, backend="aot_eager"), mine(), optimizer)
    check(model, one_process())


def functional(x):
    from torch.distributed import _functional_collectives as collectives

    group = dist.group.WORLD
    y = collectives.all_reduce(x * 2, "sum", group) + 1
    return collectives.all_gather_tensor(y, 0, group).sum(0) + y


def blocking(x):
    y = x * 2
    dist.all_reduce(y)
    parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, y + 1)
    return sum(parts) + y


def asynchronous(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.sin()
    work.wait()
    return y + z


def by_future(x):
    y = x * 2
    return dist.all_reduce(y, async_op=True).get_future().then(lambda f: f.value()[0] + 1).wait() * 2


def of_horovod_and_torch(x):
    y = hvd.allreduce(x * 2, op=hvd.Sum)
    dist.all_reduce(y)
    return y + 1


@pytest.mark.parametrize(
    "function", [functional, blocking, asynchronous, by_future, of_horovod_and_torch],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_collectives_in_a_compiled_function(function):
    compiled = torch.compile(function, backend="aot_eager", fullgraph=function is functional)
    x = torch.arange(4.0) + dist.get_rank()
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
    check_compiled()
