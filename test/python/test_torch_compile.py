"""torch.compile: a compiled function has the values and gradients that it has uncompiled."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

custom_ops = hasattr(torch.library, "custom_op")
pytestmark = pytest.mark.skipif(
    not custom_ops, reason=f"PyTorch {torch.__version__} has no torch.library.custom_op, which came with 2.4"
)
# Makes graphs and gradients as the default does, without generating code.
BACKEND = "aot_eager"


@pytest.fixture(autouse=True)
def fresh(job):
    if custom_ops:
        torch._dynamo.reset()
    torch.manual_seed(7 + hvd.rank())


def results(function, *tensors):
    """What the function returns, and the gradient of each tensor."""
    inputs = [t.clone().requires_grad_() for t in tensors]
    output = function(*inputs)
    weights = torch.linspace(1.0, 2.0, output.numel()).reshape(output.shape) * (1 + hvd.rank())
    (output * weights).sum().backward()
    return [output.detach(), *(t.grad for t in inputs)]


def check(function, *tensors, **options):
    compiled = torch.compile(function, backend=BACKEND, **options)
    for _ in range(2):  # the second time without tracing
        for got, expected in zip(results(compiled, *tensors), results(function, *tensors)):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
@pytest.mark.parametrize("name", [None, "x"])
def test_allreduce_is_one_graph(op, name):
    def f(x):
        return hvd.allreduce(x.sin(), name=name, op=op, prescale_factor=0.5, postscale_factor=3) * 2

    check(f, torch.randn(5, 3), fullgraph=True)


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product])
def test_other_reductions(op):
    x = torch.randn(7)
    compiled = torch.compile(lambda x: hvd.allreduce(x + 1, op=op), backend=BACKEND, fullgraph=True)
    torch.testing.assert_close(compiled(x), hvd.allreduce(x + 1, op=op))


@pytest.mark.parametrize("compression", [hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression(compression):
    check(lambda x: hvd.allreduce(x.cos(), compression=compression), torch.randn(6), fullgraph=True)


def test_operations_stay_out_of_cuda_graphs():
    if not hasattr(torch.Tag, "cudagraph_unsafe"):
        pytest.skip("this PyTorch has no tag for operations that CUDA graphs cannot hold")
    operations = [getattr(torch.ops.horovod, name) for name in dir(torch.ops.horovod) if name != "name"]
    operations = [operation for operation in operations if isinstance(operation, torch._ops.OpOverloadPacket)]
    assert len(operations) == 9
    assert all(torch.Tag.cudagraph_unsafe in operation.default.tags for operation in operations)


def test_memory_format_is_the_compilers_affair():
    def f(x):
        return hvd.allreduce(x.cos().t().contiguous()) * 2

    check(f, torch.randn(4, 3), fullgraph=True)


def test_broadcast_is_one_graph():
    check(lambda x: hvd.broadcast(x * 3, 0, name="b") + 1, torch.randn(3, 2), fullgraph=True)


def test_reducescatter_is_one_graph():
    for rows in (6, 7):  # 7: the first ranks have one more
        torch._dynamo.reset()
        check(lambda x: hvd.reducescatter(x * 3, op=hvd.Sum) + 1, torch.randn(rows, 2), fullgraph=True)


def test_grouped_allreduce_is_one_graph():
    def f(x, y):
        a, b = hvd.grouped_allreduce([x * 2, y + 1], name="g")
        return a.sum() + (b * b).sum()

    check(f, torch.randn(3), torch.randn(2, 2), fullgraph=True)


@pytest.mark.parametrize("one_graph", [False, True])
def test_results_of_unknown_size(one_graph):
    """A size that depends on other ranks breaks the graph, unless PyTorch captures operators of dynamic shape."""

    def gather(x):
        return hvd.allgather(x * 2, name="a") + 1

    def exchange(x):
        output, _ = hvd.alltoall(x * 2, splits=[1] * size, name="t")
        return output * 3

    size = hvd.size()
    torch._dynamo.config.capture_dynamic_output_shape_ops = one_graph
    try:
        check(gather, torch.randn(2 + hvd.rank(), 3), fullgraph=one_graph)
        check(exchange, torch.randn(size + 1, 2), fullgraph=one_graph)
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_in_place():
    def f(x, y, z):
        x = x * 1
        hvd.allreduce_(x, op=hvd.Sum)
        hvd.broadcast_(y, 0)
        hvd.grouped_allreduce_([z], op=hvd.Sum)
        return x + 1

    def inputs():
        return [torch.full((3,), float(hvd.rank() + i)) for i in range(3)]

    compiled, plain = inputs(), inputs()
    got, expected = torch.compile(f, backend=BACKEND, fullgraph=True)(*compiled), f(*plain)
    torch.testing.assert_close([got, *compiled], [expected, *plain])


def test_what_cannot_be_in_a_graph_runs_between_two():
    def f(x):
        handle = hvd.allreduce_async(x * 2, name="x", op=hvd.Sum)
        y = x.sin()
        hvd.barrier()
        total = hvd.synchronize(handle) / hvd.size()
        (g,) = hvd.grouped_allgather([x])
        return total + y + g.sum()

    x = torch.randn(4)
    compiled = torch.compile(f, backend=BACKEND)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), f(x))


def test_process_set():
    if hvd.size() < 2:
        pytest.skip("needs two ranks")
    process_set = hvd.ProcessSet([0, hvd.size() - 1] if hvd.size() > 2 else [1])  # not all: that set is there already
    hvd.shutdown()
    hvd.init(process_sets=[process_set])
    try:
        if process_set.included():
            f = partial(hvd.allreduce, name="p", op=hvd.Sum, process_set=process_set)
            check(lambda x: f(x.sin()), torch.randn(3), fullgraph=True)
        hvd.barrier()
    finally:
        hvd.shutdown()
        hvd.init()


def test_bad_arguments_are_the_same_errors():
    compiled = torch.compile(lambda x: hvd.allreduce(x, name="bad"), backend=BACKEND)
    with pytest.raises(ValueError, match="not supported"):
        compiled(torch.ones(2, dtype=torch.complex64))


def trained(compile_model, compile_step):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    forward = compile_model(model)

    def step(x, y):
        optimizer.zero_grad()
        loss = (forward(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = compile_step(step)
    data = torch.Generator().manual_seed(11 + hvd.rank())
    for _ in range(4):
        step(torch.randn(12, 6, generator=data), torch.randn(12, 2, generator=data))
    return [p.detach() for p in model.parameters()]


def inductor_works():
    try:
        from torch.utils.cpp_extension import include_paths
    except ImportError:  # it needs setuptools
        return False
    headers = [Path(folder) / "ATen" / "NumericUtils.h" for folder in ["/usr/include", *include_paths()]]
    return shutil.which("g++") is not None and any(header.exists() for header in headers)


@pytest.mark.parametrize("what", ["model", "step"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training(what, backend):
    if backend == "inductor" and not inductor_works():
        pytest.skip("inductor, PyTorch's own backend, needs g++, setuptools and PyTorch's headers (libtorch-dev)")

    def compiled(function):
        return torch.compile(function, backend=backend)

    def as_it_is(function):
        return function

    expected = trained(as_it_is, as_it_is)
    got = trained(compiled, as_it_is) if what == "model" else trained(as_it_is, compiled)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    for p in got:
        assert torch.equal(hvd.broadcast(p, 0), p), "ranks differ"


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_are_averaged_by_hand_in_the_graph(dynamic):
    """One function computes the loss and averages it over the job."""

    def f(w, x):
        return hvd.allreduce((x @ w).pow(2).mean(0), name="loss")

    compiled = torch.compile(f, backend=BACKEND, fullgraph=True, dynamic=dynamic)
    for rows in (4, 5, 6):
        w, x = torch.randn(3, 2), torch.randn(rows, 3)
        for got, expected in zip(results(compiled, w, x), results(f, w, x)):
            torch.testing.assert_close(got, expected)
