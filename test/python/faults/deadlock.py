"""Ranks that wait for one another, in the way that CASE says. Each prints Horovod's error, or that it was rescued."""

import os
import sys
import threading
import time

import torch

import horovod.torch as hvd

hvd.init()
rank, case = hvd.rank(), os.environ["CASE"]


def train():
    """Rank 0 lacks a parameter."""
    named = [(f"body.{i}", torch.nn.Parameter(torch.zeros(3))) for i in range(100)]
    if rank != 0:
        named.append(("head.extra", torch.nn.Parameter(torch.zeros(3))))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=0.1), named)
    for _ in range(3):
        sum(p.sum() for _, p in named).backward()
        optimizer.step()
        optimizer.zero_grad()


def joined():
    """Rank 0 has no data any more, and the others disagree about what to reduce."""
    if rank == 0:
        hvd.join()
    else:
        hvd.allreduce(torch.ones(2), name=f"of.{rank}")
        hvd.join()


def sets():
    """Rank 0 changes a process set while the others train."""
    if rank == 0:
        hvd.add_process_set([0])
    else:
        hvd.allreduce(torch.ones(2), name="grad")


def rescued():
    """The main threads wait for one another, but another thread submits what is missing."""

    def late():
        time.sleep(float(os.environ["RESCUE"]))
        hvd.synchronize(hvd.allreduce_async(torch.ones(2), name=f"of.{1 - rank}"))

    thread = threading.Thread(target=late)
    thread.start()
    hvd.allreduce(torch.ones(2), name=f"of.{rank}")
    thread.join()


def helped():
    """The main threads wait for one another, and a thread that has submitted before submits what is missing."""

    def helper():
        hvd.allreduce(torch.ones(2), name="first")
        time.sleep(float(os.environ["RESCUE"]))
        hvd.synchronize(hvd.allreduce_async(torch.ones(2), name=f"of.{1 - rank}"))

    thread = threading.Thread(target=helper)
    thread.start()
    hvd.allreduce(torch.ones(2), name=f"of.{rank}")
    thread.join()


def elsewhere():
    """The main threads sleep, while other threads wait in Horovod."""
    thread = threading.Thread(target=lambda: rescue.append(hvd.allreduce(torch.ones(2), name=f"of.{rank}")))
    rescue = []
    thread.start()
    time.sleep(float(os.environ["RESCUE"]))
    hvd.allreduce(torch.ones(2), name=f"of.{1 - rank}")
    thread.join()
    assert rescue


try:
    globals()[case]()
except (hvd.HorovodInternalError, ValueError) as e:  # the latter from add_process_set, as in Horovod
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
print(f"RESCUED {time.time()}", flush=True)
