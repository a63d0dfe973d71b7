"""What the tests have workers do."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import ray


def place(add=0):
    import torch

    import horovod.torch as hvd

    hvd.init()
    total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="total")
    assert total.tolist() == [hvd.size()] * 3
    return hvd.rank() + add, hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()


def log_steps(steps):
    import horovod.torch as hvd
    from horovod.ray import ray_logger

    hvd.init()
    for step in range(steps):
        ray_logger.log({"rank": hvd.rank(), "step": step})
    return hvd.rank()


def fail(how, victim=1):
    """Take part in an allreduce that rank ``victim`` never comes to."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    hvd.allreduce(torch.ones(1), name="before")
    if hvd.rank() == victim:
        if how == "raise":
            raise KeyError("batch 7")
        if how == "sys.exit":
            sys.exit(3)
        if how == "crash":
            import ctypes

            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(torch.ones(1), name="after")


def fails_at_the_end(victim):
    """Have rank ``victim`` raise when the others no longer wait for it."""
    import horovod.torch as hvd

    hvd.init()
    if hvd.rank() == victim:
        time.sleep(0.3)  # the others return meanwhile
        raise KeyError("the end")


def sees():
    return {name: os.environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES", "HOROVOD_LOCAL_RANK", "COLOUR")}


def slowly(rank_seconds):
    import horovod.torch as hvd

    hvd.init()
    time.sleep(rank_seconds[hvd.rank()])


def hog(megabytes, victim=1):
    """Have rank ``victim`` allocate ``megabytes`` of memory, step by step."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    kept = []
    while hvd.rank() == victim and len(kept) * 100 < megabytes:
        kept.append(torch.ones(25_000_000))
        time.sleep(0.1)
    hvd.allreduce(torch.ones(1), name="after")


def returns_lock(victim):
    """Return what cannot be pickled, on rank ``victim``."""
    return {"steps": 3, "lock": threading.Lock() if rank() == victim else None}


class Odd(Exception):
    """Can be pickled, but not unpickled."""

    def __init__(self, what, when):
        super().__init__(f"{what} at {when}")


def raises_odd(victim, lock=False):
    if rank() == victim:
        error = Odd("no room", "noon")
        if lock:
            error = ValueError("no room")
            error.lock = threading.Lock()
        raise error


def returns_much():
    import numpy

    return {"array": numpy.arange(1_000_000) + rank(), "reference": ray.put(rank()), "list": [rank()]}


def until_interrupted(folder, beyond_s=0.0):
    """Log, and go on for ever; or for ``beyond_s`` seconds after an interrupt, which then has no effect."""
    log_steps(1)
    try:
        begun(folder)
        time.sleep(600)
    except KeyboardInterrupt:
        (Path(folder) / f"interrupted.{rank()}").touch()
        if beyond_s:
            time.sleep(beyond_s)
        else:
            raise


def begun(folder):
    """Leave a file for this rank."""
    (Path(folder) / f"begun.{rank()}").touch()


def rank():
    return int(os.environ["HOROVOD_RANK"])


class Counter:
    """An executable."""

    def __init__(self, start, step=1):
        self.value, self.step = start, step

    def count(self):
        import horovod.torch as hvd

        hvd.init()
        self.value += self.step + hvd.rank()
        return self.value


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
