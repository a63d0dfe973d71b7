"""Run by test_elastic_jobs.py: trains by a sharded optimizer, while workers die and join, as one process would."""

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
args = parser.parse_args()
worker = int(os.environ.get("GOROVOD_ELASTIC_WORKER", "-1"))


def network():
    torch.manual_seed(0)
    return torch.nn.Linear(7, 3)


def step_of(net, optimizer, step):
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(step)
    # The gradient does not depend on the weights, so nothing makes rounding errors grow.
    (net(torch.randn(4, 7, generator=generator)) * torch.randn(4, 3, generator=generator)).sum().backward()
    optimizer.step()


hvd.init()


@hvd.elastic.run
def train(state):
    print(f"worker {worker} from {state.step} as {hvd.rank()} of {hvd.size()} at {time.time():.3f}", flush=True)
    while state.step < args.steps:
        if args.die == [worker, state.step]:
            os.kill(os.getpid(), signal.SIGKILL)
        while state.step == args.steps - 1 and hvd.size() < args.whole:
            time.sleep(0.05)
            state.check_host_updates()
        step_of(state.model, state.optimizer, state.step)
        state.step += 1
        time.sleep(0.02)
        if state.step % 5 == 0:
            state.commit()
        else:
            state.check_host_updates()


net = network()
optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.05), net.named_parameters(), sharded=True)
state = hvd.elastic.TorchState(model=net, optimizer=optimizer, step=0)
train(state)
alone = network()
alone_optimizer = torch.optim.Adam(alone.parameters(), lr=0.05)
for step in range(args.steps):
    step_of(alone, alone_optimizer, step)
for p, q in zip(net.parameters(), alone.parameters()):
    assert torch.allclose(p, q, atol=1e-4), (p, q)
print(f"worker {worker} done: {state.step} of {args.steps} steps", flush=True)
