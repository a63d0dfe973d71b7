"""Each short operation of torch.distributed, blocking and not; then rank 1 leaves with exit code 3."""

import sys

import torch
import torch.distributed as dist

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401 - registers the backend

dist.init_process_group("gorovod")
n = dist.get_world_size()
one, some, others = torch.ones(1), torch.ones(n), torch.ones(n)
gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
for options in ({}, {"async_op": True}):
    for call in (
        lambda **k: dist.all_reduce(one, **k),
        lambda **k: dist.broadcast(one, 0, **k),
        lambda **k: gather(some, one, **k),
        lambda **k: dist.reduce_scatter_tensor(one, some, **k),
        lambda **k: dist.all_to_all_single(others, some, **k),
        lambda **k: dist.barrier(**k),
    ):
        work = call(**options)
        if work is not None:
            work.wait()
if hvd.rank() == 1:
    sys.exit(3)
dist.barrier()
