"""torchft's Manager and lighthouse over ProcessGroupGorovod: a replica is killed, one goes on, and a new one joins.

Nothing here knows ranks or sizes: the Manager learns them from the lighthouse, configures the group, and gives the new
replica the state of the old one. Both must end with the same parameters.
"""

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torchft import DistributedDataParallel, Manager
from torchft import Optimizer as ManagedOptimizer
from torchft.coordination import LighthouseServer

from horovod.torch.torchft import ProcessGroupGorovod

LONG = timedelta(seconds=600)  # a process that imports PyTorch may take minutes on a busy machine


def replica(name, dies, lighthouse, end, outcomes):
    """Train until step ``end``. A replica that sees two replicas, then one, then two, sets ``end`` five steps ahead."""
    torch.manual_seed(len(name))  # a new replica starts from other parameters
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    model = torch.nn.Linear(4, 1)
    inner = torch.optim.Adam(model.parameters(), lr=0.05)

    def load(state):
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGorovod(timeout=LONG), load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1, timeout=LONG, quorum_timeout=LONG, connect_timeout=LONG, replica_id=name,
        rank=0, world_size=1, store_addr="localhost", store_port=store.port, lighthouse_addr=lighthouse,
        hostname="localhost",
    )  # fmt: skip
    wrapped = DistributedDataParallel(manager, model)
    optimizer = ManagedOptimizer(manager, inner)
    history, together = [], 0
    generator = torch.Generator().manual_seed(len(name))
    while not 0 < end.value <= manager.current_step():
        optimizer.zero_grad()
        x = torch.randn(16, 4, generator=generator)
        (wrapped(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() == before:
            continue  # a replica was lost during this step, which is not taken
        participants = manager.num_participants()
        if participants != (history[-1:] or [0])[0]:
            history.append(participants)
        together += participants == 2
        if dies and together == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if history[-3:] == [2, 1, 2] and end.value == 0:
            end.value = manager.current_step() + 5
    outcomes.put((name, manager.current_step(), history, [p.tolist() for p in model.parameters()]))
    manager.shutdown(wait=False)


def main():
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=1, join_timeout_ms=2000, heartbeat_timeout_ms=10000)
    context = mp.get_context("spawn")
    end, outcomes = context.Value("q", 0), context.SimpleQueue()

    def start(name, dies=False):
        process = context.Process(target=replica, args=(name, dies, lighthouse.address(), end, outcomes))
        process.start()
        return process

    survivor, victim = start("survivor"), start("victim", dies=True)
    victim.join(900)
    assert victim.exitcode == -signal.SIGKILL, victim.exitcode
    replacement = start("replacement")
    for process in (survivor, replacement):
        process.join(900)
    assert (survivor.exitcode, replacement.exitcode) == (0, 0), (survivor.exitcode, replacement.exitcode)
    found = {name: (step, history, parameters) for name, step, history, parameters in (outcomes.get(), outcomes.get())}
    steps, history, parameters = found["survivor"]
    assert history[-3:] == [2, 1, 2], history
    assert found["replacement"][0] == steps
    assert found["replacement"][2] == parameters, found
    lighthouse.shutdown()
    print(f"passed: {steps} steps; a replica was killed and replaced, and both ended with the same bits", flush=True)


if __name__ == "__main__":
    sys.exit(main())
