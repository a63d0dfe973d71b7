"""Another default device than the CPU, as after torch.set_default_device("cuda"): what is the library's own stays here.

The device is "meta": where a GPU tensor would be a wrong place, a tensor without values is one, too.
"""

import ast
import datetime

import pytest
import torch
from test_faults import ROOT

import horovod.torch as hvd

needs_a_default = pytest.mark.skipif(not hasattr(torch, "set_default_device"), reason="came with PyTorch 2.0")


@pytest.fixture
def elsewhere(job):
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)  # imports modules that would compute there
    with torch.device("meta"):
        assert torch.empty(1).is_meta
        yield


def here(*values, **more):
    return torch.tensor(values, device="cpu", **more)


@needs_a_default
def test_objects(elsewhere):
    assert hvd.broadcast_object({"rank": hvd.rank()}) == {"rank": 0}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


@needs_a_default
def test_states(elsewhere):
    model = torch.nn.Linear(2, 1, device="cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(here([1.0, 2.0])).sum().backward()
    optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=hvd.rank())
    state.sync()
    assert state.step == 0
    weights = hvd.allgather(model.weight.detach())
    assert (weights == weights[0]).all()


@needs_a_default
def test_results(elsewhere):
    n = hvd.size()
    rows, splits = hvd.alltoall(torch.ones(n, 2, device="cpu"), here(*[1] * n, dtype=torch.int32))
    assert rows.tolist() == [[1, 1]] * n and splits.tolist() == [1] * n
    assert hvd.allgather(torch.ones(2, 1, device="cpu")).tolist() == [[1]] * 2 * n
    assert hvd.allreduce(torch._neg_view(here(2.0)), op=hvd.Sum).tolist() == [-2 * n]
    assert len(hvd.grouped_allgather([here(1), here(2)])) == 2


@needs_a_default
@pytest.mark.parametrize("gather", [hvd.allgather, lambda x: hvd.grouped_allgather([x])[0]], ids=["one", "group"])
def test_gradients(elsewhere, gather):
    mine = torch.ones(2, 2, device="cpu", requires_grad=True)
    gather(mine).sum().backward()
    assert mine.grad.tolist() == [[1, 1]] * 2


@needs_a_default
def test_sparse_gradients(elsewhere):
    layer = torch.nn.Embedding(4, 2, sparse=True, device="cpu")
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
    layer(here(hvd.rank() % 4)).sum().backward()
    optimizer.step()
    weights = hvd.allgather(layer.weight.detach().reshape(1, -1))
    assert hvd.size() == 1 or weights.shape == (hvd.size(), 8)


@needs_a_default
def test_process_groups(elsewhere):
    import torch.distributed as dist

    import horovod.torch.distributed  # noqa: F401

    dist.init_process_group("gorovod", init_method="horovod://", timeout=datetime.timedelta(seconds=60))
    try:
        n, rank = hvd.size(), hvd.rank()
        turned = torch.ones(2, 3, device="cpu").t()
        dist.all_reduce(turned)
        assert turned.tolist() == [[n] * 2] * 3
        outputs = [torch.empty(2, device="cpu") for _ in range(n)]
        dist.all_gather(outputs, here(1.0 * rank, 2.0))
        assert [output.tolist() for output in outputs] == [[r, 2] for r in range(n)]
        with pytest.raises(ValueError, match="share memory"):
            dist.all_reduce(here(1.0).expand(2))
        if n > 1 and rank < 2:
            mine = here(1.0, 2.0) if rank == 0 else torch.zeros(2, device="cpu")
            dist.send(mine, 1) if rank == 0 else dist.recv(mine, 0)
            assert mine.tolist() == [1, 2]
        dist.barrier()
    finally:
        dist.destroy_process_group()


FACTORIES = {
    "ByteTensor", "FloatTensor", "IntTensor", "LongTensor", "Tensor", "arange", "as_tensor", "asarray", "empty",
    "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "range",
    "scalar_tensor", "sparse_coo_tensor", "tensor", "zeros",
}  # fmt: skip


def test_every_new_tensor_has_its_device():
    """Also those that only a GPU's owner meets."""
    forgetful = []
    for file in sorted((ROOT / "python").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and (node.func.value.id, node.func.attr in FACTORIES) == ("torch", True)
                and not {"device", None} & {keyword.arg for keyword in node.keywords}
            ):
                forgetful.append(f"{file}:{node.lineno}: torch.{node.func.attr}() without device")
    assert not forgetful, "\n".join(forgetful)
