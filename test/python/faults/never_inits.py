"""Rank VICTIM stays alive but never joins the job, so that the others time out in init."""

import os
import sys
import time

import horovod.torch as hvd

if os.environ["HOROVOD_RANK"] == os.environ["VICTIM"]:
    print(f"DYING {time.time()}", flush=True)
    time.sleep(60)
    sys.exit("nobody ended this rank")
try:
    hvd.init()
except ValueError as e:
    print(f"SURVIVED {time.time()} {e}", flush=True)
    sys.exit(3)
sys.exit("the job began without a rank")
