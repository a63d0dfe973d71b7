"""Run by test_elastic_jobs.py: each step adds, uses and removes a process set. A worker dies in one of the steps."""

import os
import signal
import sys

import torch

import horovod.torch as hvd

STEPS = 6
DIES_AT = 3
dies_before = sys.argv[1]  # "add" or "remove"
worker = int(os.environ["GOROVOD_ELASTIC_WORKER"])

hvd.init(process_sets="dynamic")


def die_before(call, state):
    if worker == 1 and (call, state.step) == (dies_before, DIES_AT):
        os.kill(os.getpid(), signal.SIGKILL)


@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        die_before("add", state)
        ends = hvd.add_process_set([0, 2])
        if ends.included():
            ones = hvd.allreduce(torch.ones(1), name="ends", op=hvd.Sum, process_set=ends)
            assert ones.item() == ends.size() == len(range(0, hvd.size(), 2)), (ones, ends)
        die_before("remove", state)
        hvd.remove_process_set(ends)
        state.step += 1
        state.commit()


state = hvd.elastic.TorchState(step=0)
train(state)
print(f"worker {worker} done: {state.step} of {STEPS} steps", flush=True)
