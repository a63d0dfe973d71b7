"""Rank VICTIM kills itself with SIGKILL at step STEP, while DataLoader workers are alive."""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd

victim, last_step = int(os.environ["VICTIM"]), int(os.environ["STEP"])
hvd.init()
data = TensorDataset(torch.arange(4096.0))
loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
try:
    for step, (part,) in enumerate(loader):
        if step == last_step and hvd.rank() == victim:
            print(f"DYING {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(part, name="step")
except hvd.HorovodInternalError as e:
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
sys.exit("the job outlived its rank")
