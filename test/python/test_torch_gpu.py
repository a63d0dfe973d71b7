"""Tensors on real GPUs, which ranks share if there are fewer GPUs than ranks. Skipped where there is none.

``make test-gpu`` runs them with each value of GOROVOD_GPU.
"""

import time

import pytest
import torch
from definitions import of_all, reduced

import horovod.torch as hvd
from horovod.torch import _staging

pytestmark = [
    pytest.mark.usefixtures("job"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is false: there is no GPU"),
]

DTYPES = [torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.fixture
def device():
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def busy():
    """Give the current stream about a tenth of a second of work."""
    if hasattr(torch.cuda, "_sleep"):
        torch.cuda._sleep(200_000_000)


def test_cuda_can_be_asked_for_events():
    assert _staging._event_query() is not None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 3), (100_000, 3)])
def test_operations(device, dtype, shape):
    inputs = of_all(shape, dtype)
    mine = inputs[hvd.rank()].to(device)
    expected = reduced(inputs, hvd.Sum)
    for result, wanted in [
        (hvd.allreduce(mine, op=hvd.Sum), expected),
        (hvd.broadcast(mine, hvd.size() - 1), inputs[-1]),
        (hvd.grouped_allreduce([mine, mine], op=hvd.Sum)[1], expected),
        *([(hvd.allgather(mine), torch.cat(inputs))] if shape else []),
    ]:
        assert result.device == device and result.dtype == dtype
        torch.testing.assert_close(result.cpu(), wanted)
    torch.testing.assert_close(mine.cpu(), inputs[hvd.rank()])
    assert hvd.allreduce_(mine, op=hvd.Sum) is mine
    torch.testing.assert_close(mine.cpu(), expected)


def test_splits(device):
    n = hvd.size()
    rows = torch.arange(2.0 * n, device=device).reshape(2 * n, 1)
    received, splits = hvd.alltoall(rows, torch.full((n,), 2, dtype=torch.int32))
    assert received.device == device and splits.tolist() == [2] * n
    mine = [2.0 * hvd.rank(), 2.0 * hvd.rank() + 1]
    assert received.flatten().tolist() == mine * n
    scattered = hvd.reducescatter(rows, op=hvd.Sum)
    assert scattered.device == device and scattered.flatten().tolist() == [n * value for value in mine]


def test_the_copy_waits_for_the_kernel_and_the_caller_for_nothing(device):
    mine = torch.zeros(1_000_000, device=device)
    hvd.allreduce(mine, name="before")
    mine += 0.0  # CUDA loads a kernel when it is first used, and may wait for the GPU to do so
    busy()
    mine += hvd.rank() + 1.0
    start = time.perf_counter()
    handle = hvd.allreduce_async(mine, op=hvd.Sum)
    assert not torch.cuda.current_stream().query() or time.perf_counter() - start > 0.05  # it is still busy
    result = hvd.synchronize(handle)
    assert result.sum().item() == 1_000_000 * hvd.size() * (hvd.size() + 1) / 2


def test_streams(device):
    making, asking = torch.cuda.Stream(device), torch.cuda.Stream(device)
    with torch.cuda.stream(making):
        mine = torch.zeros(1_000_000, device=device)
        busy()
        mine += 1.0
        handle = hvd.allreduce_async_(mine, op=hvd.Sum)
    with torch.cuda.stream(asking):
        result = hvd.synchronize(handle)
        doubled = result * 2
    asking.synchronize()
    assert (doubled == 2.0 * hvd.size()).all()


def test_memory_is_not_reused_too_early(device):
    # Tensors that are dropped at once: the allocator would give their memory to the next one.
    handles = []
    for i in range(50):
        handles.append(hvd.allreduce_async(torch.full((100_000,), float(i), device=device), op=hvd.Sum))
        torch.full((100_000,), -1.0, device=device)
    for i, handle in enumerate(handles):
        assert (hvd.synchronize(handle) == float(i * hvd.size())).all()


def test_negated_views(device):
    mine = torch._neg_view(torch.arange(6.0, device=device))
    assert hvd.allreduce(mine, op=hvd.Sum).tolist() == [-float(i * hvd.size()) for i in range(6)]
    assert hvd.allreduce_(mine, op=hvd.Sum) is mine
    assert mine.tolist() == [-float(i * hvd.size()) for i in range(6)]


def test_noncontiguous_tensors_are_refused(device):
    with pytest.raises(ValueError, match="contiguous"):
        hvd.allreduce(torch.zeros(4, 3, device=device).t())


def test_groups_on_several_devices_are_refused(device):
    with pytest.raises(ValueError, match="same device"):
        hvd.grouped_allreduce([torch.zeros(2, device=device), torch.zeros(2)])


def test_ranks_on_cpu_and_gpu_are_refused(device):
    if hvd.size() == 1:
        return
    with pytest.raises(hvd.HorovodInternalError, match="CPU/GPU device selection"):
        hvd.allreduce(torch.ones(5, device=device if hvd.rank() % 2 else "cpu"), op=hvd.Sum)


def test_graphs_are_refused(device):
    static = torch.ones(4, device=device)
    hvd.allreduce(static, name="static")
    refused = []
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            try:
                hvd.allreduce(static, name="static")
            except ValueError as e:
                refused.append(str(e))
    except RuntimeError:  # the refusal may end the capture
        pass
    assert refused and "captured into a CUDA graph" in refused[0]
    torch.cuda.synchronize()
    assert hvd.allreduce(static, op=hvd.Sum, name="after").tolist() == [float(hvd.size())] * 4


def test_sync_batch_norm(device):
    layer = hvd.SyncBatchNorm(3).to(device)
    whole = torch.randn(hvd.size() * 4, 3, 5, generator=torch.Generator().manual_seed(1)).to(device)
    mine = whole[4 * hvd.rank() : 4 * hvd.rank() + 4].clone().requires_grad_()
    expected = torch.nn.BatchNorm1d(3).to(device)(whole)[4 * hvd.rank() : 4 * hvd.rank() + 4]
    result = layer(mine)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    result.pow(2).sum().backward()
    assert mine.grad.isfinite().all()


@pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16])
def test_compression(device, compression):
    mine = torch.arange(64.0, device=device)
    result = hvd.allreduce(mine, op=hvd.Sum, compression=compression)
    assert result.device == device and result.dtype == torch.float32
    torch.testing.assert_close(result, mine * hvd.size())


def test_torch_distributed(device):
    import torch.distributed as dist

    import horovod.torch.distributed  # noqa: F401

    backends = "cpu:gorovod,cuda:gorovod" if int(torch.__version__.split(".")[0]) > 1 else "gorovod"
    dist.init_process_group(backends, init_method="horovod://")
    try:
        mine = torch.full((1000,), float(dist.get_rank()), device=device)
        dist.all_reduce(mine)
        assert (mine == float(sum(range(dist.get_world_size())))).all()
        gathered = [torch.zeros(2, device=device) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, torch.full((2,), float(dist.get_rank()), device=device))
        assert [t[0].item() for t in gathered] == [float(r) for r in range(dist.get_world_size())]
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2).to(device))
        model(torch.ones(3, 4, device=device) * (1 + dist.get_rank())).sum().backward()
        mean = 3.0 * sum(range(1, dist.get_world_size() + 1)) / dist.get_world_size()
        torch.testing.assert_close(model.module.weight.grad, torch.full((2, 4), mean, device=device))
    finally:
        dist.destroy_process_group()


def test_training(device):
    """A model on the GPU, with a buffer that stays in host memory, takes the steps that it takes in host memory."""
    results = []
    for where in (device, torch.device("cpu")):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(where)
        model.register_buffer("steps", torch.tensor(float(hvd.rank())))
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        assert model.steps.item() == 0
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        for step in range(5):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + hvd.rank())).to(where)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        results.append([p.detach().cpu() for p in model.parameters()])
    for on_gpu, on_cpu in zip(*results):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-3, atol=1e-4)
