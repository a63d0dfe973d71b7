"""Ranks that work until rank 1 dies, by a signal or by an exception. The others say what they are told of it.

They say it in the file TOLD, since launchers that fail lose output. There each says its process id, too.
"""

import os
import signal
import sys

import torch

import horovod.torch as hvd


def say(line: str) -> None:
    """One write at the end of the file, which all share."""
    with open(os.environ["TOLD"], "a", buffering=1, encoding="utf-8") as told:
        told.write(line.replace("\n", " ") + "\n")


hvd.init()
say(f"pid {os.getpid()}")
step = 0
try:
    while True:
        step += 1
        if hvd.rank() == 1 and step == 4:
            if sys.argv[1] == "raise":
                raise KeyError("no such batch")
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.allreduce(torch.ones(1 << 20), name="grad")
except hvd.HorovodInternalError as e:
    say(f"told {hvd.rank()}: {e}")
    raise
