"""Trains a small convolutional network on handwritten digits, data-parallel.

    horovodrun -np 4 python examples/pytorch_digits.py

Runs alone too (``python examples/pytorch_digits.py``). The batch size is that
of all ranks together, so the loss curve does not depend on their number.
"""

import argparse
import gzip
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
TRAIN_SIZE = 1500  # of 1797; divisible by 2, 3 and 4, so that no rank gets an image twice


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 2 * 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def load_digits():
    """The training and the test set, the same on every rank."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images = torch.from_numpy(table[:, :64].copy()).reshape(-1, 1, 8, 8) / 16
    labels = torch.from_numpy(table[:, 64].astype(np.int64))
    train = TensorDataset(images[:TRAIN_SIZE], labels[:TRAIN_SIZE])
    test = TensorDataset(images[TRAIN_SIZE:], labels[TRAIN_SIZE:])
    return train, test


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--save", metavar="PATH", help="where rank 0 saves the trained weights")
    parser.add_argument("--loss-log", metavar="FILE", help="where rank 0 writes the loss of each step, as JSON lines")
    args = parser.parse_args()
    if args.batch_size < 1 or args.batch_size % hvd.size() != 0:
        parser.error(f"--batch-size {args.batch_size} cannot be split evenly over {hvd.size()} ranks")
    return args


def train_epoch(model, optimizer, loader):
    """One pass over this rank's share. Returns the losses (one a step, averaged
    over all ranks) and the seconds that this rank waited for gradients."""
    losses = torch.zeros(len(loader))
    waited = 0.0
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()  # each gradient is on its way to the other ranks as soon as it is there
        start = time.perf_counter()
        optimizer.synchronize()
        waited += time.perf_counter() - start
        with optimizer.skip_synchronize():
            optimizer.step()
        losses[step] = loss.detach()
    start = time.perf_counter()
    losses = hvd.allreduce(losses, name="losses")
    waited += time.perf_counter() - start
    return losses, waited


def accuracy(model, dataset):
    """The share of the dataset that is recognised; each rank tries a part of it."""
    images, labels = (t[hvd.rank() :: hvd.size()] for t in dataset.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    return hvd.allreduce(right, name="right", op=hvd.Sum).item() / len(dataset)


def weights_are_identical(model):
    """Whether all ranks hold the same weights, bit for bit."""
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    digest = torch.frombuffer(bytearray(hashlib.sha256(weights).digest()), dtype=torch.uint8)
    digests = hvd.allgather(digest.reshape(1, -1), name="digests")
    return bool((digests == digests[0]).all())


def sparkline(values):
    """The values as a row of bars, the highest for the largest."""
    top = max(values)
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * v / top))] for v in values)


def main():
    hvd.init()
    args = parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + hvd.rank())  # different weights everywhere, until rank 0's are broadcast
    say = print if hvd.rank() == 0 else (lambda *_, **__: None)

    train, test = load_digits()
    sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch_size // hvd.size(), sampler=sampler, drop_last=True)

    model = Net()
    # Horovod's rule is to multiply the learning rate by hvd.size(). Not here:
    # more ranks make each rank's batch smaller, and the whole batch stays the same.
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    say(f"training on {len(train)} digits, {hvd.size()} rank(s), batches of {args.batch_size}", flush=True)
    curve, by_epoch = [], []
    seconds = waited = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        losses, epoch_waited = train_epoch(model, optimizer, loader)
        seconds += time.perf_counter() - start
        waited += epoch_waited
        schedule.step()
        curve += losses.tolist()
        by_epoch.append(losses.mean().item())
        right = accuracy(model, test)
        say(f"epoch {epoch + 1:2d}/{args.epochs}  loss {losses.mean():.4f}  test accuracy {right:.4f}", flush=True)

    share = hvd.allreduce(torch.tensor(waited / max(seconds, 1e-9)), name="share").item()
    same = weights_are_identical(model)
    if hvd.rank() == 0:
        images = len(curve) * args.batch_size
        print(f"loss by epoch          {sparkline(by_epoch)}  {by_epoch[0]:.2f} to {by_epoch[-1]:.2f}")
        print(f"test accuracy          {right:.4f} ({len(test)} digits that no rank has trained on)")
        print(f"speed                  {images / max(seconds, 1e-9):.0f} images/s, all ranks together")
        print(f"waiting for gradients  {share:.1%} of the time, slower ranks included")
        print(f"weights                {'bit-identical on all ranks' if same else 'DIFFER between ranks'}")
        if args.save:
            torch.save(model.state_dict(), args.save)
        if args.loss_log:
            lines = (json.dumps({"step": step, "loss": loss}) for step, loss in enumerate(curve))
            Path(args.loss_log).write_text("".join(line + "\n" for line in lines))
    hvd.shutdown()
    if not same:
        raise SystemExit("the ranks ended with different weights")


if __name__ == "__main__":
    main()
