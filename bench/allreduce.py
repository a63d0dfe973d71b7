"""Allreduce on two ranks: gorovod beside torch.distributed's gloo, in one run.

    horovodrun -np 2 python bench/allreduce.py

Both work in place on the same tensor, float32, Sum, host memory. They take
turns, so that whatever else the machine does hurts both alike. Printed are
medians over the rounds; a ratio above 1 says that gorovod is faster.
"""

import argparse
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist

import horovod.torch as hvd

SIZES = ((4, 200), (64 << 20, 2))  # bytes, operations per round


def join_gloo():
    """Joins the ranks in torch.distributed too; rank 0 chooses the port."""
    address = None
    if hvd.rank() == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    address = hvd.broadcast_object(address, root_rank=0, name="address")
    dist.init_process_group("gloo", init_method=address, rank=hvd.rank(), world_size=hvd.size())


def per_operation(allreduce, tensor, count):
    """Seconds that one operation took, over count of them."""
    hvd.barrier()
    start = time.perf_counter()
    for _ in range(count):
        allreduce(tensor)
    return (time.perf_counter() - start) / count


def measure(size, count, rounds):
    """The median seconds of one operation: gorovod's, gloo's."""
    ways = (
        lambda t: hvd.allreduce_(t, op=hvd.Sum, name=f"bench.{size}"),
        lambda t: dist.all_reduce(t, op=dist.ReduceOp.SUM),
    )
    tensor = torch.zeros(size // 4)
    for way in ways:
        per_operation(way, tensor, count)  # warm up: slots, buffers, pages
    times = ([], [])
    for _ in range(rounds):
        for way, taken in zip(ways, times):
            taken.append(per_operation(way, tensor, count))
    return [statistics.median(taken) for taken in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", metavar="FILE", help="where rank 0 writes the medians")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    join_gloo()
    results = []
    for size, count in SIZES:
        ours, gloo = measure(size, count, args.rounds)
        results.append({"ranks": hvd.size(), "bytes": size, "gorovod_s": ours, "gloo_s": gloo, "ratio": gloo / ours})
        if hvd.rank() == 0:
            if size < 1 << 16:
                shown = f"{ours * 1e6:9.1f} us   gloo {gloo * 1e6:9.1f} us"
            else:
                shown = f"{size / ours / 1e9:9.2f} GB/s gloo {size / gloo / 1e9:9.2f} GB/s"
            print(f"allreduce {size:>9} B on {hvd.size()} ranks: gorovod {shown}   ratio {gloo / ours:.2f}", flush=True)
    if hvd.rank() == 0:
        print(f"({os.cpu_count()} cores; bandwidth is tensor bytes per second; median of {args.rounds} rounds)")
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=1)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
