"""Rank VICTIM kills itself with SIGKILL at step STEP of a DistributedDataParallel training over gorovod."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from horovod.torch.distributed import HorovodInternalError

victim, last_step = int(os.environ["VICTIM"]), int(os.environ["STEP"])
dist.init_process_group("gorovod")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300), bucket_cap_mb=0.1)
try:
    for step in range(1000):
        if step == last_step and dist.get_rank() == victim:
            print(f"DYING {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ["WHAT"] == "ddp":
            model(torch.ones(1, 300)).sum().backward()
        else:
            dist.all_reduce(torch.ones(1 << 20))
except RuntimeError as e:
    text = str(e).replace("\n", " ")
    kind = "internal" if isinstance(e, HorovodInternalError) else "runtime"
    print(f"SURVIVED {time.time()} {kind} {text}", flush=True)
    sys.stdout.flush()
    os._exit(3)
sys.exit("the job outlived its rank")
