"""A rank's program for test_torch_gpu_jobs.py: operations on real GPUs through NCCL, and ranks that end badly.

gpu_jobs.py CASE
"""

import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

STEPS, DIES_AT, WORKER_THAT_DIES = 30, 10, 1
BUSY_CYCLES = 3_000_000_000  # more than a second


def start():
    hvd.init()
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    ones = torch.ones(1 << 20, device="cuda")
    assert (hvd.allreduce(ones, op=hvd.Sum, name="first") == hvd.size()).all()
    torch.cuda.synchronize()
    return ones


def killed():
    """The last rank dies while the others' GPUs wait for it within NCCL."""
    ones = start()
    if hvd.rank() == hvd.size() - 1:
        torch.cuda._sleep(BUSY_CYCLES)
    handle = hvd.allreduce_async(ones, op=hvd.Sum, name="never ends")
    if hvd.rank() == hvd.size() - 1:
        time.sleep(0.3)
        print(f"DYING {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        hvd.synchronize(handle)
        torch.cuda.synchronize()
    except hvd.HorovodInternalError as e:
        print(f"SURVIVED {time.time()} {e}", flush=True)
        assert (torch.ones(10, device="cuda") + 1).sum().item() == 20  # the GPU still works
        print("GPU OF USE", flush=True)
        sys.exit(3)
    sys.exit("an allreduce without its last rank has ended well")


def leaves_work():
    """Every rank ends with operations in flight, after a long kernel."""
    ones = start()
    torch.cuda._sleep(BUSY_CYCLES // 3)
    for i in range(4):
        hvd.allreduce_async(ones, op=hvd.Sum, name=f"work {i}")
    print("LEAVES", flush=True)


def elastic():
    """A worker dies during the training; the others go on."""
    hvd.init()
    worker = int(os.environ["GOROVOD_ELASTIC_WORKER"])
    torch.cuda.set_device(worker % torch.cuda.device_count())
    model = torch.nn.Linear(1000, 1000).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state):
        while state.step < STEPS:
            if worker == WORKER_THAT_DIES and state.step == DIES_AT:
                print(f"DYING {time.time()}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            model(torch.ones(8, 1000, device="cuda") * (1 + hvd.rank())).pow(2).mean().backward()
            optimizer.step()
            torch.cuda.synchronize()
            state.step += 1
            state.commit()
            print(f"STEP {state.step} of {hvd.size()} ranks {time.time()}", flush=True)

    train(hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0))
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = hvd.allgather(weights.unsqueeze(0))
    assert all(torch.equal(row, weights) for row in everyone)
    print(f"DONE with {hvd.size()} ranks", flush=True)


{"killed": killed, "leaves_work": leaves_work, "elastic": elastic}[sys.argv[1]]()
