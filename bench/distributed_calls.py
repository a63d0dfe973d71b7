"""What a call of torch.distributed over gorovod costs, the short way and the long one, by turns in one job.

    horovodrun -np 2 python bench/distributed_calls.py [--rounds 20] [--calls 1000]

Each round measures every row on both ways, and the long one twice (A/A), all ranks in step. Beside them are a group
that does nothing, whose calls cost what PyTorch itself takes, and hvd.allreduce_. Rank 0 prints what python_calls.py
prints.
"""

import argparse
import gc

import torch
import torch.distributed as dist
from paired import cells, order
from python_calls import clocks, since

import horovod.torch as hvd
import horovod.torch.distributed  # noqa: F401 - registers the backend
from horovod.torch._submission import native


class Finished(torch._C._distributed_c10d.Work):
    def wait(self, timeout=None):
        return True


class Nothing(dist.ProcessGroup):
    """A group whose operations end before they begin."""

    def allreduce(self, tensors, opts=None):
        return Finished()


def repeated(call):
    def measure(calls):
        start = clocks()
        for _ in range(calls):
            call()
        return since(start)

    return measure


def rows():
    one, two = torch.zeros(1), torch.zeros(1)
    some, others = torch.zeros(hvd.size()), torch.zeros(hvd.size())
    nothing = Nothing(0, 1)
    gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
    return {
        "all_reduce of a group that does nothing": repeated(lambda: dist.all_reduce(one, group=nothing)),
        "hvd.allreduce_": repeated(lambda: hvd.allreduce_(one, op=hvd.Sum, name="bench")),
        "all_reduce": repeated(lambda: dist.all_reduce(one)),
        "all_reduce, async_op, wait": repeated(lambda: dist.all_reduce(one, async_op=True).wait()),
        "broadcast": repeated(lambda: dist.broadcast(one, 0)),
        "barrier": repeated(dist.barrier),
        "all_gather_into_tensor": repeated(lambda: gather(some, two)),
        "reduce_scatter_tensor": repeated(lambda: dist.reduce_scatter_tensor(two, some)),
        "all_to_all_single": repeated(lambda: dist.all_to_all_single(others, some)),
    }


WAYS = {"short": True, "long": False, "long again": False}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=1000, help="in each round, on each way")
    args = parser.parse_args()
    if native is None:
        parser.error("there is no extension, so there is nothing to compare")
    torch.set_num_threads(1)
    dist.init_process_group("gorovod")
    gc.disable()
    measured = rows()
    times = {(row, way): [] for row in measured for way in WAYS}
    for round_ in range(args.rounds + 1):
        for way in order(list(WAYS), round_):
            native.enable(WAYS[way])
            for row, measure in measured.items():
                hvd.barrier()
                spent = measure(args.calls)
                if round_:  # the first one warms up
                    times[row, way].append([1e6 * seconds / args.calls for seconds in spent])
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {args.rounds} rounds, torch {torch.__version__}, 4 B each")
        print("| | wall, µs: short | long | ratio | A/A | processor, µs: short | long | ratio | A/A |")
        print("|---|---|---|---|---|---|---|---|---|")
        for row in measured:
            by_clock = [cells(*([spent[clock] for spent in times[row, way]] for way in WAYS)) for clock in range(2)]
            print(f"| {row} | {' | '.join(by_clock[0] + by_clock[1])} |")
    native.enable(True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
