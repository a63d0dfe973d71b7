"""Ranks add callbacks, which start operations, to many operations: rank 1 from the last to the first."""

import torch
import torch.distributed as dist

import horovod.torch.distributed  # noqa: F401
from horovod.torch.distributed import _callbacks

dist.init_process_group("gorovod")
works = [dist.all_reduce(torch.tensor([float(k)]), async_op=True) for k in range(_callbacks.NAMES + 1)]
started = []
futures = [
    work.get_future().then(lambda f: started.append(dist.all_reduce(f.value()[0], async_op=True)))
    for work in (works if dist.get_rank() == 0 else reversed(works))
]
for future in futures:
    future.wait()
print("NOBODY NOTICED", flush=True)
for work in started:
    work.wait()
