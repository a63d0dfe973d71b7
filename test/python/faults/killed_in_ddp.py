"""Rank VICTIM kills itself with SIGKILL at step STEP of what torch.distributed does over gorovod: WHAT is ``ddp``,
``allreduce``, or ``callbacks`` of futures, in the middle of which it happens.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from horovod.torch.distributed import HorovodInternalError


def die():
    print(f"DYING {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def in_callbacks(dying):
    """Callbacks that wait for operations which they have started, and for callbacks that have been added before."""

    def again(future):
        if dying:
            die()
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    futures = [dist.all_reduce(torch.ones(4), async_op=True).get_future() for _ in range(3)]
    chains = [future.then(again) for future in futures for _ in range(2)]
    failures = []
    for chain in chains:
        try:
            chain.wait()
        except RuntimeError as e:
            failures.append(e)
    if failures:
        assert len(failures) == len(chains), failures
        raise failures[-1]


victim, last_step = int(os.environ["VICTIM"]), int(os.environ["STEP"])
dist.init_process_group("gorovod")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300), bucket_cap_mb=0.1)
try:
    for step in range(1000):
        dying = step == last_step and dist.get_rank() == victim
        if os.environ["WHAT"] == "callbacks":
            in_callbacks(dying)
        elif dying:
            die()
        elif os.environ["WHAT"] == "ddp":
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
