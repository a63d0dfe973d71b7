"""PyTorch's clients of torch.distributed over gorovod: FSDP2, tensor parallel layers, ZeRO's optimizer, checkpoints.

Each is compared with the same steps in one process.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import horovod.torch.distributed  # noqa: F401 - registers the backend

STEPS, BATCH = 5, 8


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(rank=None):
    """The batches of a rank, or those of all ranks."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        batch = torch.randn(BATCH * dist.get_world_size(), 6, generator=generator)
        yield batch if rank is None else batch[rank * BATCH : (rank + 1) * BATCH]


def steps(model, optimizer, rank=None):
    for batch in batches(rank):
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
    return model


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def same(model, wanted, what):
    for (name, parameter), expected in zip(model.named_parameters(), wanted.parameters()):
        torch.testing.assert_close(whole(parameter), expected.detach(), msg=lambda m: f"{what}: {name}: {m}")  # noqa: B023


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.05)


def main():
    dist.init_process_group("gorovod")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    assert dist.get_backend(mesh.get_group()) == "gorovod"
    alone = network()
    steps(alone, adam(alone))

    sharded = network()
    fully_shard(sharded[0], mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    same(steps(sharded, adam(sharded), rank), alone, "fully_shard")

    replicas = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(replicas.parameters(), torch.optim.Adam, lr=0.05)
    same(steps(replicas, optimizer, rank).module, alone, "ZeroRedundancyOptimizer")

    split = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    same(steps(split, adam(split)), alone, "parallelize_module")

    matrix = torch.arange(5.0 * size).reshape(5, size)  # rows do not divide among ranks
    rows = distribute_tensor(matrix, mesh, [Shard(0)])
    torch.testing.assert_close(rows.redistribute(mesh, [Shard(1)]).redistribute(mesh, [Replicate()]).to_local(), matrix)

    folder = tempfile.TemporaryDirectory() if rank == 0 else None
    place = [folder and folder.name]
    dist.broadcast_object_list(place, src=0)
    state = {"model": get_model_state_dict(sharded)}
    checkpoint.save(state, checkpoint_id=place[0])
    other = network()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    loaded = {"model": get_model_state_dict(other)}  # written in shards, read whole
    checkpoint.load(loaded, checkpoint_id=place[0])
    set_model_state_dict(other, loaded["model"])
    same(other, alone, "checkpoint")
    dist.barrier()
    if rank == 0:
        print("passed: FSDP2, ZeRO's optimizer, tensor parallel layers and a checkpoint equal one process", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
