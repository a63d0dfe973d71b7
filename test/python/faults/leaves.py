"""Rank 1 leaves with code 0 while ranks 0 and 1, and 2 and 3, work in sets of their own; rank 3 notices late."""

import sys
import time

import torch

import horovod.torch as hvd

sets = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])]
hvd.init(process_sets=sets)
mine = sets[hvd.rank() // 2]
hvd.allreduce(torch.ones(1), name="all")
if hvd.rank() == 1:
    print(f"DYING {time.time()}", flush=True)
    sys.exit(0)
if hvd.rank() == 3:
    time.sleep(1)
try:
    hvd.allreduce(torch.ones(1), name="mine", process_set=mine)
except hvd.HorovodInternalError as e:
    print(f"SURVIVED {time.time()} {e}", flush=True)
    raise
