"""Trains a small network on 4 workers of a Ray cluster, with RayExecutor.

    python examples/ray/digits_executor.py

Starts a cluster on this machine, or uses the one that RAY_ADDRESS names. The driver prints what rank 0 logs.
"""

import argparse

import digits
import ray

import horovod.torch as hvd
from horovod.ray import RayExecutor, ray_logger


def train(data, args):
    """Runs on every worker. The workers of a machine share one copy of the data, in Ray's store."""
    (images, labels), test = data
    hvd.init()
    training = digits.Training(args.lr, args.epochs)
    for epoch in range(args.epochs):
        loss = training.train_epoch(digits.shuffled(images, labels, epoch, args.batch_size))
        right = training.accuracy(*test)
        if hvd.rank() == 0:
            ray_logger.log({"epoch": epoch + 1, "loss": loss, "accuracy": right})
    hvd.shutdown()
    return right


def say(logged):
    print("epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}".format(**logged), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all workers together")
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    ray.init(log_to_driver=False, ignore_reinit_error=True)
    executor = RayExecutor(num_workers=args.workers)
    executor.start()
    accuracies = executor.run(train, args=[digits.load(), args], callbacks=[say])
    executor.shutdown()
    ray.shutdown()
    print(f"test accuracy {accuracies[0]:.4f} on {len(accuracies)} ranks")


if __name__ == "__main__":
    main()
