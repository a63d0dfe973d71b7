"""Trains on handwritten digits, and goes on after a failure from where the work was last committed.

    horovodrun -np 4 python examples/pytorch_elastic.py
    horovodrun -np 4 python examples/pytorch_elastic.py --interrupt-at 130
    horovodrun -np 4 --min-np 2 python examples/pytorch_elastic.py      # and kill one of them

A state holds what is trained, and how far. When an operation fails, every rank that is left goes back to the last
commit, meets the others again, takes over rank 0's state, and goes on. To show that, ``--interrupt-at`` has the last
rank leave the others during an epoch. Each image is trained on once per epoch, whatever happens.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from pytorch_digits import Net, accuracy, load_digits, weights_are_identical
from torch.utils.data import DataLoader

import horovod.torch as hvd


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--commit-every", type=int, default=10, metavar="STEPS", help="(%(default)s)")
    parser.add_argument("--interrupt-at", type=int, metavar="STEP", help="leave the job once, before this step")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    if args.batch_size < 1 or args.commit_every < 1:
        parser.error("--batch-size and --commit-every must be at least 1")
    return args


class Interruption:
    """Makes the last rank fail once, as if it had lost its network."""

    def __init__(self, step):
        self.step = step

    def check(self, step):
        if step == self.step and hvd.rank() == hvd.size() - 1:
            self.step = None
            raise hvd.HorovodInternalError(f"rank {hvd.rank()} leaves at step {step}, as it was told")


@hvd.elastic.run
def train(state, data, args, interruption):
    """Called anew after each failure, with the state of the last commit."""
    train_data, test_data = data
    if hvd.rank() == 0:
        print(f"from step {state.step} (epoch {state.epoch + 1}) on {hvd.size()} rank(s)", flush=True)
    batch = max(1, args.batch_size // hvd.size())
    while state.epoch < args.epochs:
        for group in state.optimizer.param_groups:
            group["lr"] = args.lr * (0.5 + 0.5 * math.cos(math.pi * state.epoch / args.epochs))
        loader = DataLoader(train_data, batch_size=batch, sampler=state.sampler)
        loss = torch.zeros(())  # in case this epoch has no batch left
        for i, (images, labels) in enumerate(loader):
            interruption.check(state.step)
            state.optimizer.zero_grad()
            loss = F.cross_entropy(state.model(images), labels)
            loss.backward()
            state.optimizer.step()
            state.sampler.record_batch(i, len(images))
            state.step += 1
            if state.step % args.commit_every == 0:
                state.commit()
        loss = hvd.allreduce(loss.detach(), name="loss").item()
        right = accuracy(state.model, test_data)
        if hvd.rank() == 0:
            print(f"epoch {state.epoch + 1:2d}/{args.epochs}  loss {loss:.4f}  test accuracy {right:.4f}", flush=True)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()
    return right


def main():
    args = parse_args()
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + hvd.rank())  # different weights everywhere, until the state is synchronised
    data = load_digits()
    model = Net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9), named_parameters=model.named_parameters()
    )
    sampler = hvd.elastic.ElasticSampler(data[0], seed=args.seed)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, step=0)
    start = time.perf_counter()
    right = train(state, data, args, Interruption(args.interrupt_at))
    seconds = time.perf_counter() - start
    same = weights_are_identical(model)
    if hvd.rank() == 0:
        print(f"test accuracy          {right:.4f} after {state.step} steps in {seconds:.1f} s")
        print(f"weights                {'bit-identical on all ranks' if same else 'DIFFER between ranks'}")
    hvd.shutdown()
    if not same:
        raise SystemExit("the ranks ended with different weights")


if __name__ == "__main__":
    main()
