"""Rank ODD submits "other", the others "stuck". After RESCUE seconds, if set, each submits the one it left out."""

import os
import sys
import time

import torch

import horovod.torch as hvd

hvd.init()
odd = hvd.rank() == int(os.environ["ODD"])
names = ["other", "stuck"] if odd else ["stuck", "other"]
try:
    handle = hvd.allreduce_async(torch.ones(3), name=names[0])
    if "RESCUE" in os.environ:
        time.sleep(float(os.environ["RESCUE"]))
        hvd.synchronize(hvd.allreduce_async(torch.ones(3), name=names[1]))
    hvd.synchronize(handle)
except hvd.HorovodInternalError as e:
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
print(f"RESCUED {time.time()}", flush=True)
