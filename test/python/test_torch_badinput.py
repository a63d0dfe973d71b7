"""What users get wrong, or what training runs into: the right error on the ranks that it concerns, and no hang."""

import gc
import os
import re
import signal
import threading
import warnings

import pytest
import torch
from definitions import check, several, works

import horovod.torch as hvd
from horovod.torch import _staging, _version, mpi_ops

pytestmark = pytest.mark.usefixtures("job")


def parameter(*shape, value=0.0, dtype=torch.float32):
    return torch.nn.Parameter(torch.full(shape or (2,), value, dtype=dtype))


def sgd(named, lr=1.0, **kwargs):
    return hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=lr), named, **kwargs)


# ---- types


def test_integers():
    """The average of integers truncates and has no gradient. PyTorch itself refuses to train parameters of integers."""
    whole = torch.tensor([1, 2, -3]) * (hvd.rank() + 1)
    total = sum(torch.tensor([1, 2, -3]) * (r + 1) for r in range(hvd.size()))
    check(hvd.allreduce(whole), torch.div(total, hvd.size(), rounding_mode="trunc"))
    assert not hvd.allreduce(whole).requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        torch.nn.Parameter(torch.ones(2, dtype=torch.int32))
    frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.int32), requires_grad=False)
    p = parameter()
    optimizer = sgd([("p", p), ("frozen", frozen)])
    p.sum().backward()
    optimizer.step()
    check(p.detach(), torch.full((2,), -1.0))
    check(frozen.detach(), torch.ones(2, dtype=torch.int32))


@several()
def test_a_type_that_cannot_be_reduced():
    p = parameter(dtype=torch.complex64, value=1.0)
    optimizer = sgd([("layer.phase", p)])
    with pytest.raises(ValueError, match=r'ComplexFloatTensor is not supported\. \(tensor "layer.phase"\)'):
        p.abs().sum().backward()
    with pytest.raises(ValueError, match="layer.phase"):
        optimizer.step()
    with pytest.raises(ValueError, match="layer.phase"):
        hvd.broadcast_parameters({"layer.phase": p.detach()}, 0)
    works()


def test_what_is_no_handle():
    for wrong in ([], {}, "1", None, 1.5, torch.ones(1)):
        for call in (hvd.poll, hvd.synchronize):
            with pytest.raises(TypeError, match="expected the handle of an asynchronous call, an int, not "):
                call(wrong)
    handle = hvd.allreduce_async(torch.ones(1), name="handle")
    check(hvd.synchronize(handle), torch.ones(1))
    assert hvd.synchronize(handle) is None
    with pytest.raises(ValueError, match=f"Handle {handle} was not created or has been cleared"):
        hvd.poll(handle)


@pytest.mark.parametrize("average", ["x", "", [], torch.ones, b"1"])
def test_what_is_neither_true_nor_false(average):
    for call in (
        hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_,
        lambda x, **arguments: hvd.grouped_allreduce([x], **arguments),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="average must be True or False, not "):
            call(torch.ones(1), average=average)


@pytest.mark.parametrize("compression", [None, 3, "fp16", hvd.Compression])
def test_what_does_not_compress(compression):
    x = torch.ones(hvd.size())
    for call in (
        hvd.allreduce, hvd.reducescatter,
        lambda x, **arguments: hvd.grouped_allreduce([x], **arguments),
        lambda x, **arguments: hvd.grouped_reducescatter([x], **arguments),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="compression must be one of hvd.Compression"):
            call(x, compression=compression)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"groups": 1}, {"compression": hvd.Compression.fp16}, {"op": hvd.Sum}], ids=str
)
def test_narrow_parameters(dtype, options):
    """A network of 16-bit floats is trained and broadcast like any other."""
    w, b = parameter(3, dtype=dtype), parameter(1, dtype=dtype)
    with torch.no_grad():
        w.fill_(hvd.rank())
    hvd.broadcast_parameters({"w": w.detach(), "b": b.detach()}, hvd.size() - 1)
    check(w.detach(), torch.full((3,), float(hvd.size() - 1), dtype=dtype))
    optimizer = sgd([("w", w), ("b", b)], **options)
    for _ in range(2):
        ((w * (hvd.rank() + 1)).sum() + b.sum() * 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    n = hvd.size()
    mean = (n + 1) / 2 * (n if "op" in options else 1)
    check(w.detach(), torch.full((3,), n - 1 - 2 * mean, dtype=dtype))
    check(b.detach(), torch.full((1,), -4.0 * (n if "op" in options else 1), dtype=dtype))


# ---- names


def test_a_parameter_without_name():
    a, b = parameter(), parameter(3)
    with pytest.raises(ValueError, match=rf"were not named.*{id(b)} \(parameter 1 of group 0, of shape \[3\]\)"):
        hvd.DistributedOptimizer(torch.optim.SGD([a, b], lr=1.0), [("a", a)])


@several()
@pytest.mark.parametrize("groups", [None, 1, 2], ids=str)
def test_any_order_of_parameters(groups):
    """The ranks hold, name and use their parameters in different orders."""
    shapes = {"a": (2,), "b": (3, 2), "c": (1,), "d": (2,)}
    order = list(shapes)
    order = order[hvd.rank() :] + order[: hvd.rank()]
    named = [(name, parameter(*shapes[name])) for name in order]
    optimizer = sgd(named, groups=groups)
    for step in range(3):
        used = named if step % 2 else named[::-1]
        sum(p.sum() * (ord(name) + hvd.rank()) for name, p in used).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, p in named:
        check(p.detach(), torch.full(shapes[name], -3 * (ord(name) + (hvd.size() - 1) / 2)))


@several()
def test_a_mismatch_names_the_parameter():
    good = parameter()
    mismatch = r'Mismatched ALLREDUCE tensor shapes.*\(tensor "encoder.bad(\.optimizer2)?"\)$'
    for groups in (None, 1):
        bad = parameter(2 + hvd.rank())
        optimizer = sgd([("good", good), ("encoder.bad", bad)], groups=groups)
        (good.sum() + bad.sum()).backward()
        with pytest.raises(hvd.HorovodInternalError, match=mismatch):
            optimizer.step()
        optimizer.zero_grad()
    for call, name in [
        (lambda t: hvd.allreduce(t, name="x"), "x"),
        (lambda t: hvd.grouped_allreduce([good.detach(), t], name="x"), "x_2of2"),
        (lambda t: hvd.broadcast_(t, 0, name="x"), "x"),
        (lambda t: hvd.broadcast_parameters({"net.x": t}, 0), "net.x"),
    ]:
        with pytest.raises(hvd.HorovodInternalError, match=rf'\(tensor "{name}"\)$'):
            call(torch.ones(2 + hvd.rank()))
    with pytest.raises(hvd.HorovodInternalError, match=r'\(tensor "allreduce.noname.\d+"\)$'):
        hvd.allreduce(torch.ones(2 + hvd.rank()))
    works()


@several()
def test_refusals_name_the_tensor():
    bent = torch.ones(2, 3).t()
    for call in (
        lambda: hvd.allreduce(bent, name="x"),
        lambda: hvd.allreduce_(bent, name="x"),
        lambda: hvd.grouped_allreduce([bent], name="x"),
        lambda: hvd.allgather(bent, name="x"),
        lambda: hvd.broadcast(bent, 0, name="x"),
        lambda: hvd.alltoall(bent, name="x"),
        lambda: hvd.reducescatter(bent, name="x"),
        lambda: hvd.grouped_reducescatter([bent], name="x"),
    ):
        with pytest.raises(ValueError, match=r'^Tensor is required to be contiguous\. \(tensor "x"\)$'):
            call()


@several()
def test_a_parameter_that_one_rank_lacks():
    """The others wait until that rank leaves. Then their error names the parameter."""
    shared, extra = parameter(), parameter()
    lacks = hvd.rank() == 0
    named = [("shared", shared)] if lacks else [("shared", shared), ("head.extra", extra)]
    optimizer = sgd(named)
    sum(p.sum() for _, p in named).backward()
    if lacks:
        optimizer.step()
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError, match=r"shut down.*head\.extra"):
            optimizer.step()
        hvd.shutdown()
    hvd.init()
    works()


@several()
def test_groups_need_the_same_parameters():
    named = [("shared", parameter())] + ([("head.extra", parameter())] if hvd.rank() else [])
    if hvd.rank() == 0:
        sgd(named, groups=2)
    else:
        with pytest.raises(ValueError, match=r"lacks none and has \['head.extra'\] more"):
            sgd(named, groups=2)
    works("after")


@several()
@pytest.mark.parametrize("named", [True, False])
def test_two_optimizers_with_equal_names(named):
    """Their gradients are reduced at the same time but kept apart. The ranks use them in different orders."""
    one, two = parameter(), parameter()
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0), [("weight", p)] if named else None) for p in (one, two)
    ]
    for step in range(3):
        losses = [one.sum() * (hvd.rank() + 1), two.sum() * 10]
        in_order = 1 if (step + hvd.rank()) % 2 else -1
        for loss in losses[::in_order]:
            loss.backward()
        for optimizer in optimizers[::-in_order]:
            optimizer.step()
            optimizer.zero_grad()
    check(one.detach(), torch.full((2,), -3 * (hvd.size() + 1) / 2))
    check(two.detach(), torch.full((2,), -30.0))


def test_names_of_further_optimizers():
    hvd.shutdown()  # the count begins anew
    hvd.init()

    def names(*given):
        optimizer = sgd([(name, parameter()) for name in given])
        return list(optimizer._travel_names.values())

    assert names("a", "b") == ["a", "b"]
    assert names("c") == ["c"]
    assert names("b", "c") == ["b.optimizer2", "c.optimizer2"]
    assert names("a", "b") == ["a.optimizer3", "b.optimizer3"]
    optimizer = sgd([("d", parameter())])
    optimizer.add_param_group({"params": [parameter()]})
    assert list(optimizer._travel_names.values()) == ["d", "allreduce.noname.1.0"]


# ---- arguments


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"op": 77}, ValueError, "unknown reduce operation 77"),
        ({"op": "Sum"}, ValueError, "unknown reduce operation 'Sum'"),
        ({"compression": None}, TypeError, "compression must be .*, not None"),
        ({"process_set": 0}, TypeError, "process_set must be a ProcessSet, not 0"),
        ({"process_set": hvd.ProcessSet([0])}, ValueError, "is not initialized"),
        ({"gradient_predivide_factor": 0}, ValueError, "gradient_predivide_factor must be finite and not 0, not 0"),
        ({"gradient_predivide_factor": float("nan")}, ValueError, "gradient_predivide_factor .* not nan"),
        ({"gradient_predivide_factor": "2"}, TypeError, "gradient_predivide_factor must be a number, not '2'"),
        ({"backward_passes_per_step": 1.5}, TypeError, "backward_passes_per_step must be an int, not 1.5"),
        ({"named_parameters": [("a",)]}, ValueError, "sequence of tuples"),
        ({"named_parameters": [(5, parameter())]}, ValueError, "sequence of tuples"),
    ],
    ids=str,
)
def test_arguments_of_the_optimizer(options, error, match):
    with pytest.raises(error, match=match):
        hvd.DistributedOptimizer(torch.optim.SGD([parameter()], lr=1.0), **options)


@pytest.mark.parametrize("version", ["0.4.1", "1.7.0a0", "1.12.1+cpu"])
def test_versions_of_pytorch_that_are_too_old(version):
    _version.check(torch.__version__)
    _version.check("2.14.1+debian")
    with pytest.raises(ImportError, match=rf"needs PyTorch 1.13 or later, and this is {re.escape(version)}"):
        _version.check(version)


def test_what_is_no_optimizer():
    with pytest.raises(TypeError, match="optimizer must be a torch.optim.Optimizer, not list"):
        hvd.DistributedOptimizer([parameter()])


CALLS = {
    "allreduce": hvd.allreduce,
    "allreduce_async_": hvd.allreduce_async_,
    "allgather": hvd.allgather,
    "alltoall": hvd.alltoall,
    "broadcast": lambda tensor, **options: hvd.broadcast(tensor, 0, **options),
    "reducescatter": hvd.reducescatter,
    "grouped_allreduce": lambda tensor, **options: hvd.grouped_allreduce([tensor], **options),
    "grouped_allgather": lambda tensor, **options: hvd.grouped_allgather([tensor], **options),
    "grouped_reducescatter": lambda tensor, **options: hvd.grouped_reducescatter([tensor], **options),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arguments_of_operations(call):
    """Refused on this rank, before another rank hears of the call."""
    t = torch.ones(2, 2)
    for options, error, match in [
        ({"name": 5}, TypeError, "name must be a str, not 5"),
        ({"process_set": 0}, TypeError, "process_set must be a ProcessSet, not 0"),
        ({"process_set": hvd.ProcessSet([0])}, ValueError, "is not initialized"),
    ]:
        with pytest.raises(error, match=match):
            call(t, **options)
    with pytest.raises(ValueError, match="Tensor on the device meta has no values"):
        call(torch.ones(2, 2, device="meta"))
    with pytest.raises(TypeError, match="expected a torch.Tensor, got list"):
        call([1.0])


@pytest.mark.parametrize("name", ["allreduce", "reducescatter", "grouped_allreduce", "grouped_reducescatter"])
def test_reduce_operations_that_there_are_not(name):
    with pytest.raises(ValueError, match="unknown reduce operation 77"):
        CALLS[name](torch.ones(2, 2), op=77)


@pytest.mark.parametrize("root", ["0", 0.0, None], ids=repr)
def test_root_ranks_that_are_no_numbers(root):
    optimizer = torch.optim.SGD([parameter()], lr=1.0)
    for call in (
        lambda: hvd.broadcast(torch.ones(2), root),
        lambda: hvd.broadcast_(torch.ones(2), root),
        lambda: hvd.broadcast_object({}, root),
        lambda: hvd.broadcast_parameters({"p": torch.ones(2)}, root),
        lambda: hvd.broadcast_optimizer_state(optimizer, root),
    ):
        with pytest.raises(TypeError, match=f"root rank must be an integer, not {root!r}"):
            call()


MISTAKES = {
    "alltoall": (
        lambda wrong: hvd.alltoall(torch.ones(12), [99] + [0] * (hvd.size() - 1) if wrong else None, name="odd"),
        "the sum of the splits 99 is greater than the first dimension 12",
    ),
    "broadcast": (lambda wrong: hvd.broadcast(torch.ones(4), 99 if wrong else 0, name="odd"), "invalid root rank 99"),
    "unnamed": (lambda wrong: hvd.broadcast(torch.ones(4), 99 if wrong else 0), "invalid root rank 99"),
    "bools": (lambda wrong: hvd.allreduce(torch.ones(4, dtype=torch.bool if wrong else None), name="odd"), "of bool"),
}


@several()
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_one_rank(mistake):
    """The call fails on all ranks with the reason of that rank. The next calls of the ranks match again."""
    call, reason = MISTAKES[mistake]
    for odd in range(hvd.size()):
        wrong = hvd.rank() == odd
        text = reason if wrong else f"rank {odd} on host .* refuses .*{reason}"
        with pytest.raises(ValueError if wrong else hvd.HorovodInternalError, match=text):
            call(wrong)
        works()


def test_what_are_no_parameters():
    for params in ([("p", torch.ones(1), 3)], [5], {"p": 5}, 5, torch.nn.Linear(1, 1).parameters()):
        with pytest.raises(ValueError, match="invalid params"):
            hvd.broadcast_parameters(params, 0)
    with pytest.raises(ValueError, match="needs a tensor of layout torch.sparse_coo, not torch.strided"):
        hvd.sparse_allreduce_async(torch.ones(2), "dense", hvd.Sum)


# ---- the order of calls


def test_a_second_step():
    """A second step uses the same gradients again, as without Horovod."""
    p = parameter()
    optimizer = sgd([("p", p)])
    (p * (hvd.rank() + 1)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        optimizer.step()
    check(p.detach(), torch.full((2,), -2 * (hvd.size() + 1) / 2))


def test_a_step_before_any_backward():
    p = parameter()
    optimizer = sgd([("p", p)])
    optimizer.step()
    check(p.detach(), torch.zeros(2))


@several()
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
def test_a_second_backward(op):
    p = parameter()
    optimizer = sgd([("body.weight", p)], op=op)
    p.sum().backward()
    with pytest.raises(AssertionError, match=r'backward_passes_per_step.*\(parameter "body.weight"\)'):
        p.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    p.sum().backward()
    optimizer.step()
    works()


@several()
def test_a_graph_of_the_gradient():
    p = parameter(value=1.0)
    optimizer = sgd([("body.weight", p)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about cycles
        with pytest.raises(AssertionError, match=r'create_graph=True.*\(parameter "body.weight"\)'):
            (p * p).sum().backward(create_graph=True)
    p.grad = None
    optimizer.synchronize()
    optimizer.zero_grad()


# ---- values


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 1},
        {"compression": hvd.Compression.fp16},
        {"op": hvd.Sum},
        {"op": hvd.Min},
        {"op": hvd.Max},
        {"gradient_predivide_factor": 2.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_pass_through(options, value):
    """They reach all ranks, in their own element only: code that scales losses looks for them."""
    p, q = parameter(4), parameter(3)
    optimizer = sgd([("p", p), ("q", q)], **options)
    weights = torch.ones(4)
    if hvd.rank() == hvd.size() - 1:
        weights[2] = value
    ((p * weights).sum() + q.sum()).backward()
    optimizer.step()
    of_min = options.get("op") == hvd.Min and value == float("inf") and hvd.size() > 1
    assert p.isfinite().tolist() == [True, True, of_min, True]
    if value != value:
        assert p.isnan().tolist() == [False, False, True, False]
    assert bool(q.isfinite().all())
    assert bool(hvd.allreduce(torch.tensor([value])).isfinite()) is False


# ---- memory


@pytest.mark.usefixtures("by_ctypes")
def test_a_model_elsewhere_with_buffers_in_host_memory(monkeypatch):
    """One dict has parameters that seem to be on a GPU, and buffers in host memory."""
    net = torch.nn.BatchNorm1d(3)
    with torch.no_grad():
        for t in net.state_dict().values():
            t.fill_(hvd.rank() + 1)
    elsewhere = {p.data_ptr() for p in net.parameters()}
    copied = []

    def usable(tensor):
        if tensor.data_ptr() in elsewhere:
            copied.append(tensor)
            return False
        return True

    monkeypatch.setattr(_staging, "_usable", usable)
    hvd.broadcast_parameters(net.state_dict(), hvd.size() - 1)
    assert copied
    for t in net.state_dict().values():
        check(t, torch.full_like(t, hvd.size()))
    a, b = net.weight.detach(), net.running_mean
    for result in hvd.grouped_allreduce_([a, b], op=hvd.Sum):
        check(result, torch.full((3,), float(hvd.size() ** 2)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_model_on_a_gpu_with_buffers_in_host_memory():
    net = torch.nn.BatchNorm1d(3)
    net.weight.data, net.bias.data = net.weight.data.cuda(), net.bias.data.cuda()
    with torch.no_grad():
        for t in net.state_dict().values():
            t.fill_(hvd.rank() + 1)
    hvd.broadcast_parameters(net.state_dict(), hvd.size() - 1)
    for t in net.state_dict().values():
        check(t.cpu(), torch.full_like(t, hvd.size()).cpu())


def test_tensors_that_are_freed_early():
    """A tensor, a gradient or an optimizer may be dropped while its operations are in progress."""
    for i in range(5):
        for call in (hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather_async):
            call(torch.ones(5000), name=f"dropped.{call.__name__}.{i}")
        hvd.grouped_allreduce_async([torch.ones(5000), torch.ones(3)], name=f"dropped.group.{i}")
        hvd.sparse_allreduce_async(torch.eye(3).to_sparse(), f"dropped.sparse.{i}", hvd.Sum)
    p = parameter(5000)
    optimizer = sgd([("p", p)])
    p.sum().backward()
    del p, optimizer
    gc.collect()
    rubbish = [torch.full((5000,), 7.0) for _ in range(20)]  # where they were
    works("after")
    assert all(bool((t == 7).all()) for t in rubbish)
    hvd.barrier()
    hvd.shutdown()
    assert mpi_ops._handle_map == {}
    hvd.init()


@several()
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"compression": hvd.Compression.bf16}], ids=str)
def test_gradients_that_are_dropped_before_the_step(options):
    """Where all ranks drop it, step leaves the parameter alone; where some do, all use the sum that is in progress."""
    p = parameter()
    optimizer = sgd([("p", p)], **options)
    for step in range(3):
        (p * (hvd.rank() + 1)).sum().backward()
        if step == 1 or (step == 2 and hvd.rank() == 0):
            p.grad = None
        optimizer.step()
        optimizer.zero_grad()
    check(p.detach(), torch.full((2,), -float(hvd.size() + 1)))


# ---- interrupts


@several()
@pytest.mark.parametrize("op", [hvd.Average, hvd.Adasum])
@pytest.mark.parametrize("by", ["step", "synchronize of a handle"])
def test_ctrl_c_in_the_midst_of_synchronize(by, op):
    """Rank 0 waits for the others, which come only after it was interrupted; then it waits again."""
    p = parameter()
    optimizer = sgd([("p", p)], op=op)
    handle = None
    if hvd.rank() != 0:
        hvd.barrier()
    p.sum().backward()
    if by != "step":
        handle = hvd.allreduce_async(torch.ones(3), name="interrupted", op=hvd.Sum)
    if hvd.rank() == 0:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            optimizer.step() if by == "step" else hvd.synchronize(handle)
        timer.join()
        hvd.barrier()
    if handle is not None:
        check(hvd.synchronize(handle), torch.full((3,), float(hvd.size())))
    optimizer.step()
    check(p.detach(), torch.full((2,), -1.0))
    works("after")


@pytest.mark.parametrize(
    "call",
    [
        hvd.allreduce,
        hvd.allreduce_,
        lambda x, name: hvd.grouped_allreduce([x], name=name),
        lambda x, name: hvd.reduce(x, 0, name),
        lambda x, name: hvd.reduce_async_(x, 0, name),
    ],
)
def test_freed_memory(call):
    freed = torch.ones(4)
    freed.storage().resize_(0)
    with pytest.raises(ValueError, match=r"Tensor without memory.* \(tensor \"freed.*\"\)"):
        call(freed, name="freed")
    assert hvd.allreduce(freed[:0], name="empty").numel() == 0


def _make_fx(call, x):
    return pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx(call)(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: hvd.allreduce(x, name="traced"),
        lambda x: hvd.allreduce_(x, name="traced"),
        lambda x: hvd.allreduce_(x.sum(), name="traced"),
        lambda x: hvd.synchronize(hvd.allreduce_async_(x, name="traced")),
        lambda x: hvd.broadcast_(x, 0, name="traced"),
        lambda x: hvd.synchronize(hvd.broadcast_async_(x, 0, name="traced")),
        lambda x: hvd.grouped_allreduce_([x], name="traced")[0],
        lambda x: hvd.synchronize(hvd.grouped_allreduce_async_([x], name="traced"))[0],
        lambda x: hvd.grouped_allreduce([x], name="traced")[0],
        lambda x: hvd.allgather(x, name="traced"),
        lambda x: hvd.synchronize(hvd.allgather_async(x, name="traced")),
        lambda x: hvd.alltoall(x, name="traced"),
        lambda x: hvd.synchronize(hvd.alltoall_async(x, name="traced"))[0],
        lambda x: hvd.broadcast(x, 0, name="traced"),
        lambda x: hvd.reduce(x, 0, name="traced"),
        lambda x: hvd.reducescatter(x, name="traced"),
    ],
)
@pytest.mark.parametrize("record", [lambda call, x: torch.jit.trace(call, (x,), check_trace=False), _make_fx])
def test_recorded_programs_hold_no_collective(call, record):
    with pytest.raises(RuntimeError, match="records this call, but its program cannot hold a collective"):
        record(call, torch.ones(4 * hvd.size(), 2))
    works("after")
