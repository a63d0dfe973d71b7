"""Learns who clicks on what: embeddings in sparse tables, in a model like DLRM (arXiv:1906.00091).

    horovodrun -np 4 python examples/pytorch_clicks.py

Users and films are keys of any size, whose rows are divided among the ranks and trained where they are. The rest of
the model is small, and every rank has all of it. The clicks are made up: see made_up_clicks.py. The batch size is that
of all ranks together, so the result does not depend on their number.
"""

import argparse
import time

import torch
from made_up_clicks import NUMBERS, Clicks, auc
from torch import nn
from torch.nn import functional

import horovod.torch as hvd

TEST_BATCHES = 25


class Model(nn.Module):
    """The products of all pairs of embeddings, and what is known of the click, go through a small network."""

    def __init__(self, dim, lr, seed):
        super().__init__()
        rows = {"optimizer": "adagrad", "lr": lr, "seed": seed, "op": hvd.Average, "init": "normal", "scale": 0.05}
        self.users = hvd.ShardedEmbedding(dim, name="users", **rows)
        self.films = hvd.ShardedEmbedding(dim, name="films", **rows)
        self.seen = hvd.ShardedEmbeddingBag(dim, mode="mean", name="seen", **rows)
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 16), nn.ReLU(), nn.Linear(16, dim))
        self.top = nn.Sequential(nn.Linear(dim + 6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, film, seen, numbers):
        known = self.bottom(numbers)
        all_of_it = torch.stack([self.users(user), self.films(film), self.seen(seen), known], 1)
        products = all_of_it @ all_of_it.transpose(1, 2)
        pairs = torch.triu_indices(4, 4, 1)
        return self.top(torch.cat([known, products[:, pairs[0], pairs[1]]], 1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=2048, help="clicks per step, of all ranks together")
    parser.add_argument("--dim", type=int, default=16, help="numbers of a row")
    parser.add_argument("--seed", type=int, default=1, help="of the model and the order of the clicks")
    args = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    clicks, model = Clicks(0), Model(args.dim, 0.1, args.seed)

    def batch(number):
        return map(torch.from_numpy, clicks.batch(number, args.batch_size, hvd.rank(), hvd.size()))

    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)  # the rows have optimizers of their own
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    began = time.perf_counter()
    first = (1 + args.seed) * 1_000_000  # each seed sees other clicks
    for step in range(args.steps):
        *inputs, clicked = batch(first + step)
        loss = functional.binary_cross_entropy_with_logits(model(*inputs), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if hvd.rank() == 0 and step % 100 == 0:
            print(f"step {step}: loss {float(loss):.3f}", flush=True)
    took = time.perf_counter() - began

    model.eval()
    scores, truth = [], []
    with torch.no_grad():
        for number in range(TEST_BATCHES):
            *inputs, clicked = batch(number)
            scores.append(model(*inputs))
            truth.append(clicked)
    scores, truth = hvd.allgather(torch.cat(scores)), hvd.allgather(torch.cat(truth))
    rows = hvd.allreduce(torch.tensor(model.users.local_rows()), op=hvd.Sum, name="rows")
    if hvd.rank() == 0:
        print(f"{int(rows)} users; {args.steps / took:.0f} steps/s; AUC {auc(scores.numpy(), truth.numpy()):.4f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
