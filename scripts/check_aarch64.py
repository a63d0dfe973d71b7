"""The program of a rank under QEMU. scripts/check_aarch64.sh runs it."""

import platform

import torch

import horovod.torch as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
assert platform.machine() == "aarch64" and size == 2
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
    for length in (1, 7, 1000, 70001):  # some do not fill whole vector registers; the last is not staged at once
        mine = torch.arange(length).remainder(50).to(dtype) + rank
        summed = hvd.allreduce(mine, op=hvd.Sum, name=f"sum.{dtype}.{length}")
        assert torch.equal(summed.double(), torch.arange(length).remainder(50).double() * 2 + 1), (dtype, length)
parts = hvd.allgather(torch.full((rank + 1,), rank))
assert parts.tolist() == [0, 1, 1], parts
assert hvd.broadcast(torch.tensor([rank]), root_rank=1).item() == 1
assert hvd.alltoall(torch.tensor([rank, rank])).tolist() == [0, 1]
assert hvd.reducescatter(torch.ones(4), op=hvd.Sum).tolist() == [2.0, 2.0]
model = torch.nn.Linear(3, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.ones(1, 3) * rank).sum().backward()
optimizer.step()
assert hvd.allgather_object(model.weight.tolist())[0] == model.weight.tolist()
hvd.shutdown()
print(f"rank {rank} of {size} on {platform.machine()}: good", flush=True)
