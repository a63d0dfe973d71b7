"""Prints a table of what it costs to reduce gradients while the program computes.

    horovodrun -np 2 python bench/torch_overlap.py

A step computes in pieces, matrix products of some milliseconds on one thread, as a backward pass would. There are three
ways:

- *alone*: the step only computes
- *after*: it computes, and then reduces all tensors
- *amid*: it submits each tensor as soon as a backward pass would have it, computes on, and waits at the end

Where ranks have no core to spare, *amid* cannot be faster than *after*. Its additional time is then what the engine
takes from the program. The table has medians of the slowest rank, in milliseconds. The three ways take turns.
"""

import argparse
import statistics
import time

import torch

import horovod.torch as hvd

# The lengths of the tensors, and how many more of them are ready after each piece.
TASKS = {"30 of 4 KB, each after a piece": ([1000] * 30, 1), "160 of 640 KB, 8 after each": ([160_000] * 160, 8)}


class Task:
    def __init__(self, lengths, every):
        self.tensors = [torch.zeros(n) for n in lengths]
        self.every = every
        self.matrix = torch.randn(256, 256)

    def piece(self, i):
        if i % self.every == 0:
            torch.mm(self.matrix, self.matrix)

    def start(self, i):
        return hvd.allreduce_async_(self.tensors[i], op=hvd.Sum, name=f"{len(self.tensors)}.{i}")

    def alone(self):
        for i in range(len(self.tensors)):
            self.piece(i)

    def after(self):
        self.alone()
        for handle in [self.start(i) for i in range(len(self.tensors))]:
            hvd.synchronize(handle)

    def amid(self):
        handles = []
        for i in range(len(self.tensors)):
            self.piece(i)
            handles.append(self.start(i))
        for handle in handles:
            hvd.synchronize(handle)


def measure(way):
    """Return the seconds of the slowest rank."""
    hvd.barrier()
    start = time.perf_counter()
    way()
    seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
    return hvd.allreduce(seconds, op=hvd.Max, name="seconds").item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="steps of each kind (%(default)s)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    torch.set_num_threads(1)
    hvd.init()
    if hvd.rank() == 0:
        print("| tensors | ranks | alone | after | amid |\n|---|---|---|---|---|", flush=True)
    for name, (lengths, every) in TASKS.items():
        task = Task(lengths, every)
        ways = [task.alone, task.after, task.amid]
        for way in ways:
            measure(way)
        times = [
            statistics.median(column) for column in zip(*([measure(way) for way in ways] for _ in range(args.rounds)))
        ]
        if hvd.rank() == 0:
            print(f"| {name} | {hvd.size()} | " + " | ".join(f"{1000 * t:.0f}" for t in times) + " |", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
