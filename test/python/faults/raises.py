"""Rank VICTIM ends with an exception at step STEP."""

import os
import sys
import time

import torch

import horovod.torch as hvd

victim, last_step = int(os.environ["VICTIM"]), int(os.environ["STEP"])
hvd.init()
for step in range(1000):
    if step == last_step and hvd.rank() == victim:
        print(f"DYING {time.time()}", flush=True)
        raise ArithmeticError("the loss is not a number")
    try:
        hvd.allreduce(torch.ones(10), name="step")
    except hvd.HorovodInternalError as e:
        print(f"SURVIVED {time.time()} {e}", flush=True)
        sys.exit(3)
sys.exit("the job outlived its rank")
