"""Rank 1 kills itself in a PHASE of the third step of a sharded optimizer; or it differs from the others (PHASE).

Phases: before backward, after it has submitted a gradient (scatter), at its inner step (update), and after it has
submitted a parameter (gather). Differences: it does not shard (disagree), or has too little memory (memory).
"""

import os
import resource
import signal
import sys
import time

import torch

import horovod.torch as hvd

phase = os.environ["PHASE"]
hvd.init()
odd = hvd.rank() == 1
if phase == "memory":
    net = torch.nn.Linear(4096, 4096, bias=False)
else:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
optimizer = torch.optim.Adam(net.parameters())
optimizer = hvd.DistributedOptimizer(optimizer, net.named_parameters(), sharded=not (odd and phase == "disagree"))
step = 0


def die():
    print(f"DYING {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function, before):
    def call(*args):
        if odd and step == 3 and before:
            die()
        result = function(*args)
        if odd and step == 3:
            die()
        return result

    return call


if phase == "scatter":
    optimizer._submit = dying(optimizer._submit, False)
if phase == "update":
    optimizer._own_step = dying(optimizer._own_step, True)
if phase == "gather":
    optimizer._gather = dying(optimizer._gather, False)
try:
    for step in range(1000):
        if odd and step == 3 and phase == "backward":
            die()
        if odd and phase == "memory":
            net(torch.ones(1, 4096)).sum().backward()
            optimizer.synchronize()
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), -1))
            print(f"DYING {time.time()}", flush=True)
        elif phase == "memory":
            net(torch.ones(1, 4096)).sum().backward()
        else:
            net(torch.ones(3, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
except hvd.HorovodInternalError as e:
    if phase == "disagree" and not odd:
        print(f"DYING {time.time()}", flush=True)
        print(f"DISAGREES {time.time()} {e}", flush=True)
        raise
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
sys.exit("the job outlived its rank")
