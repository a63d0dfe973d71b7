"""A rank of a drill: it computes and reduces. After a healthy time the guilty rank is late in each step.

The environment describes the fault: DRILL_KIND, DRILL_RANK, DRILL_MAGNITUDE (in healthy steps), DRILL_HEALTHY (seconds)
and DRILL_ONSET (the file that gets the time at which the fault began). The ranks end when the file DRILL_END exists.
"""

import multiprocessing
import os
import socket
import struct
import sys
import time

import torch

import horovod.torch as hvd

COMPUTE, ELEMENTS = 0.04, 1 << 18  # seconds of CPU time in a step, and elements of its allreduce
MAX_PACING_RATE = 47  # SO_MAX_PACING_RATE of Linux


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def hog(core: int, duty: float) -> None:
    os.sched_setaffinity(0, {core})
    parent = os.getppid()
    while os.getppid() == parent:
        spin(0.01 * duty)
        if duty < 1:
            time.sleep(0.01 * (1 - duty))


def serve(requests: int, answers: int) -> None:
    """Answer each request after the number of seconds that it asks for."""
    for text in iter(lambda: os.read(requests, 8), b""):
        time.sleep(struct.unpack("d", text)[0])
        os.write(answers, b"data")


def pace(rate: int) -> None:
    """Limit each connection of this process to rate bytes a second."""
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.setsockopt(socket.SOL_SOCKET, MAX_PACING_RATE, rate)
        except OSError:
            continue


class Fault:
    """What the guilty rank does in each step, besides its work."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind == "reads":
            asked, self.requests = os.pipe()
            self.answers, answered = os.pipe()
            multiprocessing.get_context("fork").Process(target=serve, args=(asked, answered), daemon=True).start()

    def begin(self, seconds: float, step: float, magnitude: float) -> None:
        self.seconds = seconds
        if self.kind == "starves":
            core = min(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {core})
            whole = int(magnitude)
            rest = magnitude - whole
            duties = [1.0] * whole + [2 * rest / (1 + rest)]
            for duty in duties:
                multiprocessing.get_context("fork").Process(target=hog, args=(core, duty), daemon=True).start()
        elif self.kind == "link":
            sent = 4 * ELEMENTS * 2 * (hvd.size() - 1) / hvd.size()
            pace(max(1000, int(sent / seconds)))

    def step(self) -> None:
        if self.kind == "sleeps":
            time.sleep(self.seconds)
        elif self.kind == "computes":
            spin(self.seconds)
        elif self.kind == "reads":
            os.write(self.requests, struct.pack("d", self.seconds))
            os.read(self.answers, 4)


def main() -> None:
    kind, magnitude = os.environ["DRILL_KIND"], float(os.environ["DRILL_MAGNITUDE"])
    torch.set_num_threads(1)
    hvd.init()
    guilty = kind != "none" and hvd.rank() == int(os.environ["DRILL_RANK"])
    fault = Fault(kind) if guilty else None
    gradient, state = torch.zeros(ELEMENTS), torch.zeros(2)
    began, steps, faulty = time.time(), 0, False
    while True:
        # The ranks agree when the fault begins and when the job ends. The state is as late as the gradient.
        state[0] = float(hvd.rank() == 0 and time.time() - began > float(os.environ["DRILL_HEALTHY"]))
        state[1] = float(hvd.rank() == 0 and os.path.exists(os.environ["DRILL_END"]))
        spin(COMPUTE)
        if faulty and fault:
            fault.step()
        hvd.allreduce_(gradient, name="gradient")
        hvd.allreduce_(state, op=hvd.Sum, name="state")
        steps += 1
        if state[1] > 0:
            break
        if state[0] > 0 and not faulty:
            faulty = True
            step = (time.time() - began) / steps
            if fault:
                fault.begin(magnitude * step, step, magnitude)
            if hvd.rank() == 0:
                with open(os.environ["DRILL_ONSET"] + ".new", "w") as f:
                    f.write(f"{time.time()} {step}")
                os.rename(os.environ["DRILL_ONSET"] + ".new", os.environ["DRILL_ONSET"])
    sys.stdout.flush()
    os._exit(0) if guilty and kind == "starves" else hvd.shutdown()


if __name__ == "__main__":
    main()
