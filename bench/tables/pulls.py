"""Compares pulls of a sparse table with an all-to-all of keys and rows in plain PyTorch, over the same transport.

    horovodrun -np 4 python bench/tables/pulls.py

The other way is that of TFRA and torchrec: a rank finds its distinct keys, sends each to the rank that has its row, and
gets the rows. Its rows are a tensor that the key is an index of, so it needs no hash table and makes no rows. A third
way is told that its keys are distinct. All pull the same keys by turns. Rank 0 prints the milliseconds of a pull, by
the clock and of processor time, as means of the ranks, and the medians of the table's ratio to each.
"""

import argparse
import statistics
import time

import torch

import horovod.torch as hvd


class Exchange:
    """Rows that are divided by the remainder of the key, and pulled by two exchanges."""

    def __init__(self, rows, dim):
        self.rows = torch.randn((rows + hvd.size() - 1) // hvd.size(), dim)

    def pull(self, keys):
        distinct, index = torch.unique(keys, return_inverse=True)
        return self.pull_distinct(distinct)[index]

    def pull_distinct(self, distinct):
        owner = distinct % hvd.size()
        order = torch.argsort(owner)
        splits = torch.bincount(owner, minlength=hvd.size()).int()
        asked, given = hvd.alltoall(distinct[order], splits, name="keys")
        rows, _ = hvd.alltoall(self.rows[asked // hvd.size()], given, name="rows")
        found = torch.empty_like(rows)
        found[order] = rows
        return found


def measured(pull, keys):
    """The seconds and the processor seconds of a pull, which all ranks begin together."""
    hvd.barrier()
    began, used = time.perf_counter(), time.process_time()
    pull(keys)
    return time.perf_counter() - began, time.process_time() - used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all ranks together")
    parser.add_argument("--keys", type=int, default=100_000, help="distinct ones that each rank pulls")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--pulls", type=int, default=20)
    args = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())
    table = hvd.ShardedEmbedding(args.dim, args.rows, name="rows")
    for part in torch.arange(args.rows).split(100_000):  # makes the rows
        table(part[hvd.rank() :: hvd.size()])
    exchange = Exchange(args.rows, args.dim)
    ways = {"table": table, "all-to-all": exchange.pull, "all-to-all of distinct keys": exchange.pull_distinct}
    times = {name: [] for name in ways}
    with torch.no_grad():
        for n in range(args.pulls + 2):
            keys = torch.randperm(args.rows)[: args.keys]
            for name in list(ways) if n % 2 else list(ways)[::-1]:
                took = hvd.allreduce(torch.tensor(measured(ways[name], keys)), name="times").tolist()
                if n >= 2:  # the first ones fault memory in
                    times[name].append(took)
    if hvd.rank() == 0:
        print(f"{args.pulls} pulls of {args.keys} keys of dim {args.dim} on {hvd.size()} rank(s), ms by the clock, CPU")
        for name, own in times.items():
            took = [statistics.median(t[i] for t in own) * 1e3 for i in range(2)]
            ratios = [statistics.median(a[i] / b[i] for a, b in zip(times["table"], own)) for i in range(2)]
            print(f"{name}: {took[0]:.1f}, {took[1]:.1f}; the table takes {ratios[0]:.2f}, {ratios[1]:.2f} of that")
    hvd.shutdown()


if __name__ == "__main__":
    main()
