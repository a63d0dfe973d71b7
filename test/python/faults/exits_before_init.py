"""Rank VICTIM exits before it has joined the job."""

import os
import sys
import time

import horovod.torch as hvd

if os.environ["HOROVOD_RANK"] == os.environ["VICTIM"]:
    print(f"DYING {time.time()}", flush=True)
    sys.exit(7)
try:
    hvd.init()
except ValueError as e:
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
sys.exit("the job began without a rank")
