"""Rank 1 kills itself before a pull, before a push, amid them, or amid a save (PHASE), when the table has some rows.

With PHASE=load, a job looks at what is left in DIRECTORY.
"""

import os
import signal
import sys
import threading
import time

import torch

import horovod.torch as hvd

phase = os.environ["PHASE"]
hvd.init()
layer = hvd.ShardedEmbedding(16, optimizer="adam", name="users")
generator = torch.Generator().manual_seed(hvd.rank())
reached = threading.Event()


def die():
    print(f"DYING {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def die_soon():
    reached.wait()
    time.sleep(0.02)
    die()


if phase == "load":
    layer.load(os.environ["DIRECTORY"])
    print(f"LOADED {layer.local_rows()} {layer._table.pushes}")
    sys.exit()
if phase == "save":
    layer.save(os.environ["DIRECTORY"])
if hvd.rank() == 1:
    threading.Thread(target=die_soon, daemon=True).start()
try:
    for step in range(100_000):
        here = hvd.rank() == 1 and step == 3
        if here and phase == "amid":
            reached.set()
        if here and phase == "pull":
            die()
        rows = layer(torch.randint(1 << 40, (20_000,), generator=generator))
        if here and phase == "push":
            die()
        while phase == "save" and step == 3:
            reached.set()
            layer.save(os.environ["DIRECTORY"])
        rows.sum().backward()
except hvd.HorovodInternalError as e:
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
sys.exit("the job outlived its rank")
