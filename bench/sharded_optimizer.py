"""A step of a sharded optimizer, against one of the same optimizer that is not sharded, by turns in one job.

    horovodrun -np 2 python3 bench/sharded_optimizer.py [--rounds 30] [--width 1024] [--layers 6]

Each round makes a step of three copies of a network of linear layers with Adam: one that is not sharded, one more
(A/A), and a sharded one. Rank 0 prints the medians of the rounds: wall time, and the processor time of this rank, all
its threads. Ratios are of one round, with their intervals; see paired.py. It also prints the bytes of each state.
"""

import argparse
import copy
import statistics
import time

import torch
from paired import order, ratio

import horovod.torch as hvd


def network(width, layers):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))


def state_bytes(optimizer):
    values = [value for state in optimizer.state.values() for value in state.values()]
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="(%(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="rounds before them (%(default)s)")
    parser.add_argument("--width", type=int, default=1024, help="of a layer (%(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="(%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="rows (%(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    net = network(args.width, args.layers)
    sides = {}
    for way in ("whole", "again", "sharded"):
        model = copy.deepcopy(net)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), sharded=way == "sharded")
        sides[way] = model, optimizer
    batch = torch.randn(args.batch, args.width)
    walls, processors = ({way: [] for way in sides} for _ in range(2))
    for round_ in range(args.warm_up + args.rounds):
        for way in order(list(sides), round_):
            model, optimizer = sides[way]
            hvd.barrier()
            wall, processor = time.perf_counter(), time.process_time()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if round_ >= args.warm_up:
                walls[way].append(time.perf_counter() - wall)
                processors[way].append(time.process_time() - processor)
    if hvd.rank() == 0:
        total = sum(p.numel() for p in net.parameters())
        print(f"{hvd.size()} ranks, {total} parameters, {args.rounds} rounds")
        print("| | not sharded | sharded | ratio | A/A |\n|---|---|---|---|---|")
        for what, times in (("wall", walls), ("processor", processors)):
            cells = [f"{1000 * statistics.median(times[way]):.1f} ms" for way in ("whole", "sharded")]
            for way in ("sharded", "again"):
                middle, low, high = ratio(times[way], times["whole"])
                cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
            print(f"| {what} | {' | '.join(cells)} |", flush=True)
        cells = [state_bytes(sides[way][1]) for way in ("whole", "sharded")]
        print(f"| bytes of state | {cells[0]} | {cells[1]} | {cells[1] / cells[0]:.3f} | |", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
