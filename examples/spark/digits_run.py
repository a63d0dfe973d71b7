"""Handwritten digits on Spark: two processes train one network, by ``horovod.spark.run``.

    pip install 'gorovod[spark]' torch
    python examples/spark/digits_run.py

Takes a minute, most of it Spark's start. Needs Java.
"""

import argparse
import gzip
import os
import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "data" / "digits.csv.gz"
TRAIN_SIZE = 1500  # of 1797


def load():
    """Images and labels: for training, then for the test. Runs in the driver, which sends them to the ranks."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, labels = table[:, :64] / 16, table[:, 64].astype(np.int64)
    return (images[:TRAIN_SIZE], labels[:TRAIN_SIZE]), (images[TRAIN_SIZE:], labels[TRAIN_SIZE:])


def train(data, test, epochs, lr):
    """What each rank does. Returns the accuracy on the test's images."""
    import torch
    import torch.nn.functional as F

    import horovod.torch as hvd

    hvd.init()
    torch.manual_seed(hvd.rank())  # different weights everywhere, until rank 0's are broadcast
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    images, labels = (torch.as_tensor(each[hvd.rank() :: hvd.size()]) for each in data)
    steps = TRAIN_SIZE // hvd.size() // 32  # the same number on all ranks
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(images))[: steps * 32].view(steps, 32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        mean = hvd.allreduce(torch.tensor(total / steps), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch}: loss {mean:.3f}", flush=True)
    with torch.no_grad():
        found = model(torch.as_tensor(test[0])).argmax(1)
    return (found == torch.as_tensor(test[1])).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    from pyspark.sql import SparkSession

    import horovod.spark

    session = SparkSession.builder.master(f"local[{args.processes}]").appName("digits").getOrCreate()
    data, test = load()
    accuracies = horovod.spark.run(train, args=(data, test, args.epochs, args.lr), num_proc=args.processes)
    session.stop()
    assert len(set(accuracies)) == 1, accuracies  # all ranks have the same network
    print(f"accuracy {accuracies[0]:.3f}")
    return accuracies[0]


if __name__ == "__main__":
    main()
