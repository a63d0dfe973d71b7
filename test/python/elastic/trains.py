"""Run by test_elastic_jobs.py: counts the steps in the weight of a model, while workers die, fail, leave and join."""

import argparse
import atexit
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--die", type=int, nargs=2, default=(-1, -1), metavar=("WORKER", "STEP"))
parser.add_argument("--fail", type=int, nargs=2, default=(-1, -1), metavar=("WORKER", "STEP"))
parser.add_argument("--leave", type=int, nargs=2, default=(-1, -1), metavar=("WORKER", "STEP"), help="with code 0")
parser.add_argument("--exit", type=int, nargs=2, default=(-1, -1), metavar=("WORKER", "STEP"), help="with code 3")
parser.add_argument("--sets", action="store_true")
parser.add_argument("--hang", type=int, default=-1, metavar="STEP", help="train no further than this")
parser.add_argument("--whole", type=int, default=0, metavar="SIZE", help="only so many do the last step")
args = parser.parse_args()
worker = int(os.environ.get("GOROVOD_ELASTIC_WORKER", "-1"))

if args.exit[0] == worker:
    # Runs after hvd's goodbye, like a long teardown. os._exit skips Python's own teardown, which is slow on a busy
    # machine.
    atexit.register(lambda: (time.sleep(0.8), os._exit(3)))
hvd.init(process_sets="dynamic" if args.sets else None)
evens = hvd.add_process_set([0, 2, 4]) if args.sets else None


@hvd.elastic.run
def train(state):
    print(f"worker {worker} from {state.step} as {hvd.rank()} of {hvd.size()} at {time.time():.3f}", flush=True)
    while state.step < args.steps:
        if args.die == [worker, state.step]:
            print(f"worker {worker} dies at {time.time():.3f}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if args.fail == [worker, state.step]:
            raise KeyError("a bug of this worker")
        if args.leave == [worker, state.step]:
            os._exit(0)
        if args.exit == [worker, state.step]:
            sys.exit(3)
        while state.step == args.steps - 1 and hvd.size() < args.whole:
            time.sleep(0.05)
            state.commit()  # which notices newcomers
        while state.step == args.hang:
            time.sleep(0.05)
            hvd.allreduce(torch.ones(1), name="waiting")
        try:
            ones = hvd.allreduce(torch.ones(1), name="ones", op=hvd.Sum)
        except hvd.HorovodInternalError as e:
            print(f"worker {worker} is told: {e}", flush=True)
            raise
        assert ones.item() == hvd.size(), ones
        if evens is not None and evens.included():
            members = hvd.allreduce(torch.ones(1), name="evens", op=hvd.Sum, process_set=evens)
            assert members.item() == evens.size() == len(range(0, hvd.size(), 2)), (members, evens)
        with torch.no_grad():
            state.model.weight += ones / hvd.size()
        state.step += 1
        time.sleep(0.02)
        state.commit()


model = torch.nn.Linear(1, 1)
with torch.no_grad():
    model.weight.fill_(0 if hvd.rank() == 0 else float("nan"))
state = hvd.elastic.TorchState(model=model, step=0)
train(state)
# No operation is left to do, so a worker may print while others leave.
print(f"worker {worker} done: {state.model.weight.item():.0f} of {state.step} steps", flush=True)
