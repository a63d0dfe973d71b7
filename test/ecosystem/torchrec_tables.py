"""torchrec over gorovod: DistributedModelParallel with a table by columns and a whole one, against one process."""

import torch
import torch.distributed as dist
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.types import ShardingEnv, ShardingType

import horovod.torch.distributed  # noqa: F401 - registers the backend

ROWS, DIM, BATCH, STEPS, RATE = 64, 8, 16, 20, 0.1
HOW = {"by_columns": ShardingType.COLUMN_WISE, "whole": ShardingType.TABLE_WISE}


def filled(weights):
    return nn.init.constant_(weights, 0.1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        # Sharded tables are filled anew, by each shard's owner.
        tables = [EmbeddingBagConfig(ROWS, DIM, name=n, feature_names=[f"f_{n}"], init_fn=filled) for n in HOW]
        self.tables = EmbeddingBagCollection(tables=tables, device=torch.device("cpu"))
        self.over = nn.Linear(DIM * len(HOW), 1)

    def forward(self, ids):
        return self.over(self.tables(ids).values()).squeeze(1)


def bags(first, last):
    """Bags of one to three ids, and a target for each sample: those of samples first to last, of all steps."""
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        size = BATCH * dist.get_world_size()
        lengths = torch.randint(1, 4, (len(HOW), size), generator=generator)
        ids = torch.randint(0, ROWS, (len(HOW), size, 3), generator=generator)
        values = [ids[t, s, : lengths[t, s]] for t in range(len(HOW)) for s in range(first, last)]
        keys = [f"f_{name}" for name in HOW]
        yield (
            KeyedJaggedTensor.from_lengths_sync(keys, torch.cat(values), lengths[:, first:last].reshape(-1)),
            (ids[:, first:last, 0].sum(0) % 5).float(),
        )


def trained(model, first, last):
    """The outputs of each step, before it is taken."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    outputs = []
    for ids, targets in bags(first, last):
        optimizer.zero_grad()
        output = model(ids)
        (output - targets).pow(2).mean().backward()
        optimizer.step()
        outputs.append(output.detach())
    return torch.stack(outputs)


def main():
    dist.init_process_group("gorovod")
    rank, size = dist.get_rank(), dist.get_world_size()
    wanted = trained(Model(), 0, BATCH * size)

    model, sharders = (
        Model(),
        [EmbeddingBagCollectionSharder({"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": RATE})],
    )
    constraints = {
        name: ParameterConstraints(
            sharding_types=[how.value], min_partition=DIM // 2, compute_kernels=[EmbeddingComputeKernel.FUSED.value]
        )
        for name, how in HOW.items()
    }
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=size, compute_device="cpu"), constraints=constraints
    )
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    chosen = {name: part.sharding_type for name, part in plan.plan["tables"].items()}
    assert chosen == {name: how.value for name, how in HOW.items()}, chosen
    parallel = DistributedModelParallel(
        module=model, device=torch.device("cpu"), env=ShardingEnv.from_process_group(dist.group.WORLD), plan=plan,
        sharders=sharders,
    )  # fmt: skip
    found = trained(parallel, rank * BATCH, (rank + 1) * BATCH)
    torch.testing.assert_close(found, wanted[:, rank * BATCH : (rank + 1) * BATCH], rtol=1e-3, atol=1e-4)
    dist.barrier()
    if rank == 0:
        print(f"passed: {STEPS} steps with a table by columns and a whole one equal one process", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
