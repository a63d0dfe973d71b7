"""What the examples for Ray share: handwritten digits, a small network, and its training on the ranks of a job."""

import gzip
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import horovod.torch as hvd

DATA = Path(__file__).parent.parent / "data" / "digits.csv.gz"
TRAIN_SIZE = 1500  # of 1797


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1)
        self.fc = nn.Linear(width * 4 * 4, 10)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


def load():
    """Images and labels: for training, then for the test. Runs in the driver, which sends them to the workers."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, labels = table[:, :64] / 16, table[:, 64].astype(np.int64)
    return (images[:TRAIN_SIZE], labels[:TRAIN_SIZE]), (images[TRAIN_SIZE:], labels[TRAIN_SIZE:])


def tensors(images, labels):
    return torch.as_tensor(images).reshape(-1, 1, 8, 8), torch.as_tensor(labels)


class Training:
    """A network and its optimizer, the same on all ranks. ``state`` is what ``state()`` of an earlier one returned."""

    def __init__(self, lr, epochs, state=None):
        torch.set_num_threads(1)
        torch.manual_seed(hvd.rank())  # different weights everywhere, until rank 0's are broadcast
        self.lr, self.epochs, self.epoch = lr, epochs, 0
        self.model = Net()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        if state:
            self.epoch = state["epoch"]
            self.model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=self.model.named_parameters())

    def train_epoch(self, batches):
        """Train on this rank's batches, equally many on each rank. Returns the mean loss of all ranks."""
        self.epoch += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * (0.5 + 0.5 * math.cos(math.pi * (self.epoch - 1) / self.epochs))
        losses = []
        for images, labels in batches:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        return hvd.allreduce(torch.stack(losses).mean(), name="loss").item()

    def accuracy(self, images, labels):
        """The share of these that is recognised. Each rank tries a part of them."""
        images, labels = tensors(images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()])
        with torch.no_grad():
            right = (self.model(images).argmax(1) == labels).sum()
        tried = torch.tensor(len(labels))
        return (hvd.allreduce(right, op=hvd.Sum, name="right") / hvd.allreduce(tried, op=hvd.Sum, name="tried")).item()

    def state(self):
        return {"epoch": self.epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}


def shuffled(images, labels, epoch, batch_size):
    """This rank's batches of an epoch, ``batch_size`` of all ranks together."""
    order = np.random.RandomState(epoch).permutation(len(labels))
    order = order[: len(order) - len(order) % batch_size].reshape(-1, batch_size)[:, hvd.rank() :: hvd.size()]
    for chosen in order:
        yield tensors(images[chosen], labels[chosen])
