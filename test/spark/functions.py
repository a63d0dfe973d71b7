"""What the tests have ranks do."""

import os
import signal
import sys
import time


def place(add=0):
    import torch

    import horovod.torch as hvd

    hvd.init()
    total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="total")
    assert total.tolist() == [hvd.size()] * 3
    return hvd.rank() + add, hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()


def fail(how, victim=1):
    """Take part in an allreduce that rank ``victim`` never comes to."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    hvd.allreduce(torch.ones(1), name="before")
    if hvd.rank() == victim:
        if how == "raise":
            raise KeyError("batch 7")
        if how == "exit":
            print("the disk is full", file=sys.stderr, flush=True)
            os._exit(3)
        if how == "leave":
            sys.exit(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "task":
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)
        if how == "executor":
            os.kill(executor_of(os.getpid()), signal.SIGKILL)
        time.sleep(60)
    hvd.allreduce(torch.ones(1), name="after")


def parent(pid):
    """The parent of a process. A rank's is its supervisor, and that one's is Spark's task."""
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def executor_of(pid):
    """The executor of a rank: the Java above the Python daemon that Spark's task comes from."""
    return parent(parent(parent(parent(pid))))


def train(*args, **kwargs):
    """For examples in docstrings."""
    return place()


def until_shown(address):
    """Train until a page has the figures of all ranks; rank 0 returns the page."""
    import time
    import urllib.error
    import urllib.request

    import torch

    import horovod.torch as hvd

    hvd.init()
    page, end = "", time.monotonic() + 90
    while True:
        if hvd.rank() == 0:
            try:
                page = urllib.request.urlopen(address, timeout=5).read().decode()
            except urllib.error.URLError as error:
                page = str(error)
        shown = f"horovod_reporting_ranks {hvd.size()}\n" in page or time.monotonic() > end
        if hvd.broadcast_object(shown, root_rank=0):
            return page
        hvd.allreduce(torch.ones(8), name="gradient")
        time.sleep(0.2)
