"""torchft's reconfiguration over ProcessGroupGorovod: a replica is killed, two go on, and a third joins them.

The replicas are processes. They know what a torchft.Manager would tell them: the next store prefix, rank and
size.
"""

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from horovod.torch.torchft import ProcessGroupGorovod


def total(group, rank):
    """The sum of all ranks' numbers plus one, by an allreduce."""
    tensor = torch.tensor([rank + 1.0])
    group.allreduce([tensor], dist.ReduceOp.SUM).wait()
    return tensor.item()


def survivor(rank, port, outcomes):
    group = ProcessGroupGorovod(timeout=timedelta(seconds=120))
    group.configure(f"localhost:{port}/quorum/1", "replica", rank, 3)
    assert total(group, rank) == 6
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        total(group, rank)
        raise AssertionError("an allreduce without rank 2 has ended well")
    except RuntimeError as e:
        assert "rank 2 " in str(e) and "died" in str(e), e
    group.configure(f"localhost:{port}/quorum/2", "replica", rank, 2)
    assert total(group, rank) == 3
    outcomes.put(rank)
    group.configure(f"localhost:{port}/quorum/3", "replica", rank, 3)
    assert total(group, rank) == 6
    group.shutdown()
    outcomes.put(rank)


def joiner(port, outcomes):
    group = ProcessGroupGorovod(timeout=timedelta(seconds=120))
    group.configure(f"localhost:{port}/quorum/3", "replica", 2, 3)
    assert total(group, 2) == 6
    group.shutdown()
    outcomes.put(2)


def main():
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    context = mp.get_context("spawn")
    outcomes = context.Queue()
    replicas = [context.Process(target=survivor, args=(rank, store.port, outcomes)) for rank in range(3)]
    for replica in replicas:
        replica.start()
    assert sorted(outcomes.get(timeout=240) for _ in range(2)) == [0, 1]
    replicas.append(context.Process(target=joiner, args=(store.port, outcomes)))
    replicas[-1].start()
    assert sorted(outcomes.get(timeout=240) for _ in range(3)) == [0, 1, 2]
    for replica in replicas:
        replica.join(60)
    codes = [replica.exitcode for replica in replicas]
    assert codes == [0, 0, -signal.SIGKILL, 0], codes
    print("passed: 3 replicas, 2 after one was killed, 3 again", flush=True)


if __name__ == "__main__":
    sys.exit(main())
