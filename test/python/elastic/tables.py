"""Run by test_elastic_tables.py: trains the rows of a sparse table, while workers die and join.

Step s changes the rows of the keys 0 and 1 + s by -1, whatever the number of ranks.
"""

import argparse
import os
import signal
import time

import torch

import horovod.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("steps", type=int)
parser.add_argument("--die", type=int, nargs=2, default=(-1, -1), metavar=("WORKER", "STEP"))
parser.add_argument("--whole", type=int, default=0, metavar="SIZE", help="only so many do the last step")
parser.add_argument("--every", type=int, default=5, help="steps between two commits")
parser.add_argument("--inside", action="store_true", help="the table is part of a model")
args = parser.parse_args()
worker = int(os.environ.get("GOROVOD_ELASTIC_WORKER", "-1"))

hvd.init()
users = hvd.ShardedEmbedding(2, optimizer="sgd", lr=lambda n: 1.0, init="zeros", op=hvd.Average, name="users")
# A newcomer takes the others' rate.
films = hvd.ShardedEmbeddingBag(3, optimizer="adam", lr=0.5 + (worker == 3), name="films/of a year")
try:
    users(torch.tensor([1]))
except RuntimeError as e:
    print(f"worker {worker} outside: {e}", flush=True)


def check(step):
    users.eval()
    rows = users(torch.arange(args.steps + 1))
    users.train()
    want = torch.zeros(args.steps + 1)
    want[0], want[1 : 1 + step] = -step, -1
    assert torch.allclose(rows, want[:, None].expand_as(rows), atol=1e-4), (step, rows)
    assert users._table.pushes == step, (step, users._table.pushes)
    assert films.lr == 0.5


@hvd.elastic.run
def train(state):
    print(f"worker {worker} from {state.step} as {hvd.rank()} of {hvd.size()} at {time.time():.3f}", flush=True)
    check(state.step)
    while state.step < args.steps:
        if args.die == [worker, state.step]:
            print(f"worker {worker} dies at {time.time():.3f}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        while state.step == args.steps - 1 and hvd.size() < args.whole:
            time.sleep(0.05)
            state.check_host_updates()
        users.prefetch(torch.tensor([0, 1 + state.step]))
        (users(torch.tensor([0, 1 + state.step])).sum() + films(torch.tensor([[state.step % 3]])).sum()).backward()
        state.step += 1
        time.sleep(0.02)
        if state.step % args.every == 0:
            state.commit()
        else:
            state.check_host_updates()
    check(state.step)


if args.inside:
    state = hvd.elastic.TorchState(model=torch.nn.ModuleDict({"users": users, "films": films}), step=0)
else:
    state = hvd.elastic.TorchState(tables=[users, films], step=0)
train(state)
print(f"worker {worker} done: {state.step} of {args.steps} steps", flush=True)
