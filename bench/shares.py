"""A reducescatter and an allgather of a model's gradients, against their allreduce, by turns in one job.

    horovodrun -np 2 python3 bench/shares.py [--rounds 30] [--model resnet|transformer]

Each round gives the gradients one after the other, as backward does, and waits for all: once by allreduces, once more
so (A/A), and once by the operations of a sharded optimizer: reducescatters of flat shares in place, and then, when all
of them have ended, allgathers in place. Rank 0 prints the medians of the rounds: wall time, and the processor time of
this rank, all its threads. Ratios are of one round, with their intervals; see paired.py.
"""

import argparse
import statistics
import time

import torch
from paired import order, ratio

import horovod.torch as hvd
from horovod.torch import _shares


def resnet():
    """The lengths of ResNet-50's 161 gradients, the last layer's first."""
    lengths = [64 * 3 * 49, 64, 64]
    inputs = 64
    for blocks, planes in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            lengths += [inputs * planes, planes, planes, planes * planes * 9, planes, planes]
            lengths += [planes * planes * 4, planes * 4, planes * 4]
            if block == 0:
                lengths += [inputs * planes * 4, planes * 4, planes * 4]
            inputs = planes * 4
    return [*lengths, 1000 * 2048, 1000][::-1]


def transformer(layers=6, width=512, words=8192):
    """The lengths of the gradients of a small transformer."""
    layer = [3 * width * width, 3 * width, width * width, width, width, width]
    layer += [4 * width * width, 4 * width, 4 * width * width, width, width, width]
    return [words * width, *layer * layers][::-1]


MODELS = {"resnet": resnet, "transformer": transformer}


def wait(handles):
    for handle in handles:
        hvd.synchronize(handle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="(%(default)s)")
    parser.add_argument("--warm-up", type=int, default=10, help="rounds before them (%(default)s)")
    parser.add_argument("--model", choices=list(MODELS), default="resnet")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    gradients = [torch.full((n,), 1.0) for n in MODELS[args.model]()]
    names = [f"gradient.{i}" for i in range(len(gradients))]

    def allreduce():
        wait([hvd.allreduce_async_(g, op=hvd.Average, name=name) for g, name in zip(gradients, names)])

    def scatter():
        wait([_shares.scatter_async(g, name, hvd.Average) for g, name in zip(gradients, names)])

    def gather():
        wait([_shares.gather_async(g, name) for g, name in zip(gradients, names)])

    def shares():
        scatter()
        gather()

    ways = {"allreduce": allreduce, "again": allreduce, "shares": shares}
    walls, processors = ({way: [] for way in ways} for _ in range(2))
    for round_ in range(args.warm_up + args.rounds):
        for way in order(list(ways), round_):
            hvd.barrier()
            wall, processor = time.perf_counter(), time.process_time()
            ways[way]()
            if round_ >= args.warm_up:
                walls[way].append(time.perf_counter() - wall)
                processors[way].append(time.process_time() - processor)
    if hvd.rank() == 0:
        total = sum(g.numel() for g in gradients)
        print(f"{hvd.size()} ranks, {len(gradients)} gradients of {total} floats, {args.rounds} rounds")
        print("| | allreduce | reducescatter and allgather | ratio | A/A |\n|---|---|---|---|---|")
        for what, times in (("wall", walls), ("processor", processors)):
            cells = [f"{1000 * statistics.median(times[way]):.1f} ms" for way in ("allreduce", "shares")]
            for way in ("shares", "again"):
                middle, low, high = ratio(times[way], times["allreduce"])
                cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
            print(f"| {what} | {' | '.join(cells)} |", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
