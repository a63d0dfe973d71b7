"""A rank of gorovod bench in Python: horovod.torch, of gorovod or of Horovod, or torch.distributed.

    rank.py SOCKET FLOATS hvd|gloo [FILE]

It connects to the conductor's SOCKET, and obeys orders until the conductor closes the connection. An order is a line

    run MODE SIZE,SIZE,... REPETITIONS INNER

with sizes in floats. The answer is "ok" and the nanoseconds of each repetition, or "error" and the reason. FLOATS is
the length of the longest tensor. FILE is the file by which the ranks of gloo find one another.
"""

import gc
import os
import socket
import sys
from time import perf_counter_ns

import torch


class Horovod:
    def __init__(self, _):
        import horovod.torch as hvd

        self.hvd = hvd
        hvd.init()
        self.rank, self.size, self.barrier = hvd.rank(), hvd.size(), hvd.barrier

    def allreduce(self, tensors, name):
        tensor, allreduce, op = tensors[0], self.hvd.allreduce_, self.hvd.Sum
        return lambda: allreduce(tensor, op=op, name=name)

    def asynchronous(self, tensors, name):
        pairs = [(tensor, f"{name}.{i}") for i, tensor in enumerate(tensors)]
        start, wait, op = self.hvd.allreduce_async_, self.hvd.synchronize, self.hvd.Sum

        def run():
            for handle in [start(tensor, op=op, name=each) for tensor, each in pairs]:
                wait(handle)

        return run

    def submitting(self, tensors, name):
        """Like asynchronous, but the function that it returns gives the nanoseconds of the submitting calls alone."""
        pairs = [(tensor, f"{name}.{i}") for i, tensor in enumerate(tensors)]
        start, wait, op = self.hvd.allreduce_async_, self.hvd.synchronize, self.hvd.Sum

        def run():
            before = perf_counter_ns()
            handles = [start(tensor, op=op, name=each) for tensor, each in pairs]
            took = perf_counter_ns() - before
            for handle in handles:
                wait(handle)
            return took

        return run

    def grouped(self, tensors, name):
        start, wait, op = self.hvd.grouped_allreduce_async_, self.hvd.synchronize, self.hvd.Sum
        return lambda: wait(start(tensors, op=op, name=name))

    def leave(self):
        self.hvd.shutdown()


class Gloo:
    def __init__(self, file):
        import torch.distributed as dist

        self.dist = dist
        self.rank, self.size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
        dist.init_process_group("gloo", init_method="file://" + file, rank=self.rank, world_size=self.size)
        self.barrier = dist.barrier

    def allreduce(self, tensors, _):
        tensor, allreduce = tensors[0], self.dist.all_reduce  # SUM is its default
        return lambda: allreduce(tensor)

    def asynchronous(self, tensors, _):
        start = self.dist.all_reduce

        def run():
            for work in [start(tensor, async_op=True) for tensor in tensors]:
                work.wait()

        return run

    def leave(self):
        self.dist.destroy_process_group()


class Rank:
    def __init__(self, way, floats):
        self.way = way
        self.large = torch.zeros(floats)
        self.prepared = {}

    def prepare(self, mode, sizes):
        """Return the tensors and the function that reduces them, made once."""
        key = mode, sizes
        if key not in self.prepared:
            numbers = [int(size) for size in sizes.split(",")]
            tensors = [self.large[: numbers[0]]] if mode == "allreduce" else [torch.zeros(n) for n in numbers]
            ways = {"allreduce": "allreduce", "async": "asynchronous", "grouped": "grouped", "submit": "submitting"}
            make = ways[mode]
            self.prepared[key] = tensors, getattr(self.way, make)(tensors, f"bench.{mode}.{len(self.prepared)}")
        return self.prepared[key]

    def verify(self, tensors, run):
        """Runs once on numbers whose sum is known, to check the result. Leaves zeros, so that later sums stay zero."""
        for tensor in tensors:
            tensor[0] = tensor[-1] = self.way.rank + 1
        run()
        want = self.way.size * (self.way.size + 1) / 2
        for tensor in tensors:
            if tensor[0] != want or tensor[-1] != want:
                raise ValueError(f"the sum is {want}, not {tensor[0]} and {tensor[-1]}")
            tensor[0] = tensor[-1] = 0

    def obey(self, mode, sizes, repetitions, inner):
        tensors, run = self.prepare(mode, sizes)
        self.verify(tensors, run)
        times, barrier, turns = [0] * repetitions, self.way.barrier, range(inner)
        for i in range(repetitions):
            barrier()
            if mode == "submit":
                times[i] = run()
                continue
            start = perf_counter_ns()
            for _ in turns:
                run()
            times[i] = perf_counter_ns() - start
        return times


def main():
    path, floats, way = sys.argv[1:4]
    torch.set_num_threads(1)
    way = {"hvd": Horovod, "gloo": Gloo}[way](sys.argv[4] if len(sys.argv) > 4 else "")
    rank = Rank(way, int(floats))
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    control.sendall(b"hello %d\n" % way.rank)
    gc.collect()
    gc.disable()
    with control, control.makefile("r") as orders:
        for order in orders:
            _, mode, sizes, repetitions, inner = order.split()
            try:
                answer = " ".join(["ok", *map(str, rank.obey(mode, sizes, int(repetitions), int(inner)))])
            except Exception as error:
                answer = "error " + " ".join(repr(error).split())
            control.sendall(answer.encode() + b"\n")
    way.leave()


if __name__ == "__main__":
    main()
