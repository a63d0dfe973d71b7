"""What a call of horovod.torch costs, through the compiled extension and through ctypes, by turns in one job.

    horovodrun -np 2 python bench/python_calls.py [--rounds 20] [--calls 1000]

Each round measures every row on both ways, and ctypes twice (A/A), all ranks in step. Rank 0 prints, for each row, the
medians of the rounds and the least in microseconds a call: wall time, and the processor time of this rank, all its
threads. Ratios are of one round; see paired.py. On busy cores the processor time and the least say more.
"""

import argparse
import gc
import os
import statistics
import time

import torch
from paired import order, ratio

import horovod.torch as hvd
from horovod.torch._submission import native

os.environ.setdefault("HOROVOD_CACHE_CAPACITY", "4096")  # for all names below
FLOATS = [torch.zeros(1) for _ in range(1000)]
NAMES = [f"bench.{i}" for i in range(1000)]


def in_place(calls):
    x, allreduce, op = FLOATS[0], hvd.allreduce_, hvd.Sum
    start = clocks()
    for _ in range(calls):
        allreduce(x, op=op, name="bench")
    return since(start), calls


def one_by_one(calls):
    allreduce, synchronize, op = hvd.allreduce_async_, hvd.synchronize, hvd.Sum
    start = clocks()
    for _ in range(max(calls // 1000, 1)):
        for handle in [allreduce(x, op=op, name=name) for x, name in zip(FLOATS, NAMES)]:
            synchronize(handle)
    return since(start), max(calls // 1000, 1) * 1000


def submitting(calls):
    """The submitting calls alone."""
    allreduce, op, spent = hvd.allreduce_async_, hvd.Sum, (0, 0)
    for _ in range(max(calls // 1000, 1)):
        start = clocks()
        handles = [allreduce(x, op=op, name=name) for x, name in zip(FLOATS, NAMES)]
        spent = tuple(map(sum, zip(spent, since(start))))
        for handle in handles:
            hvd.synchronize(handle)
    return spent, max(calls // 1000, 1) * 1000


def grouped(calls):
    start = clocks()
    for _ in range(max(calls // 1000, 1)):
        hvd.grouped_allreduce_(FLOATS, op=hvd.Sum, name="bench")
    return since(start), max(calls // 1000, 1) * 1000


ROWS = {
    "4 B in place": in_place,
    "1,000 floats, each": one_by_one,
    "submitting one": submitting,
    "1,000 floats in a group, each": grouped,
}
WAYS = {"compiled": True, "ctypes": False, "ctypes again": False}


def clocks():
    return time.perf_counter(), time.process_time()


def since(start):
    return tuple(now - then for now, then in zip(clocks(), start))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000, help="in each round, on each way")
    args = parser.parse_args()
    if native is None:
        parser.error("there is no extension, so there is nothing to compare")
    torch.set_num_threads(1)
    hvd.init()
    gc.disable()
    times = {(row, way): [] for row in ROWS for way in WAYS}
    for round_ in range(args.rounds + 1):
        for way in order(list(WAYS), round_):
            native.enable(WAYS[way])
            for row, measure in ROWS.items():
                hvd.barrier()
                spent, calls = measure(args.calls)
                if round_:  # the first one warms up
                    times[row, way].append([1e6 * seconds / calls for seconds in spent])
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {args.rounds} rounds, torch {torch.__version__}")
        print("| | wall, µs: compiled | ctypes | ratio | A/A | processor, µs: compiled | ctypes | ratio | A/A |")
        print("|---|---|---|---|---|---|---|---|---|")
        for row in ROWS:
            cells = []
            for clock in range(2):
                compiled, ctypes, again = ([spent[clock] for spent in times[row, way]] for way in WAYS)
                cells += [f"{statistics.median(each):.2f}, {min(each):.2f}" for each in (compiled, ctypes)]
                for one in (compiled, again):
                    middle, low, high = ratio(one, ctypes)
                    cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
            print(f"| {row} | {' | '.join(cells)} |")
    hvd.shutdown()


if __name__ == "__main__":
    main()
