"""Rank 0 gets Ctrl-C while it waits for rank 1 in init."""

import os
import signal
import sys
import threading
import time

import horovod.torch as hvd

if os.environ["HOROVOD_RANK"] == "1":
    time.sleep(60)
    sys.exit("nobody ended this rank")
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
print(f"DYING {time.time()}", flush=True)
try:
    hvd.init()
except KeyboardInterrupt:
    print(f"SURVIVED {time.time()} interrupted", flush=True)
    sys.exit(3)
sys.exit("init ended without its rank")
