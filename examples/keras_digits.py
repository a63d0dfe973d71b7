"""Trains a small convolutional network on handwritten digits with Keras, data-parallel.

    horovodrun -np 2 python examples/keras_digits.py

Runs alone too (``python examples/keras_digits.py``), with Keras 2 or 3, and in Keras 3 on TensorFlow, PyTorch or JAX
(``KERAS_BACKEND=torch``). The batch size is that of all ranks together, so the loss curve does not depend on their
number.
"""

import argparse
import gzip
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import horovod.keras as hvd  # noqa: E402

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
TRAIN_SIZE = 1500  # of 1797; divisible by 2, 3 and 4, so that no rank gets an image twice


def load_digits():
    """The training and the test set, the same on every rank."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, labels = table[:, :64].reshape(-1, 8, 8, 1) / 16, table[:, 64].astype(np.int64)
    return (images[:TRAIN_SIZE], labels[:TRAIN_SIZE]), (images[TRAIN_SIZE:], labels[TRAIN_SIZE:])


def network():
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def part(array, batch):
    """This rank's rows: its share of each batch."""
    batches = array[: len(array) // batch * batch].reshape(-1, hvd.size(), batch // hvd.size(), *array.shape[1:])
    return batches[:, hvd.rank()].reshape(-1, *array.shape[1:])


class Losses(keras.callbacks.Callback):
    """Notes the mean loss of each epoch, of all ranks together."""

    def __init__(self):
        super().__init__()
        self.curve = []

    def on_epoch_end(self, epoch, logs=None):
        self.curve.append(logs["loss"])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--save", metavar="PATH", help="where rank 0 saves the trained model (.keras)")
    parser.add_argument("--loss-log", metavar="FILE", help="where rank 0 writes the loss of each epoch, as JSON lines")
    args = parser.parse_args()
    if args.batch_size < 1 or args.batch_size % hvd.size() != 0:
        parser.error(f"--batch-size {args.batch_size} cannot be split evenly over {hvd.size()} ranks")
    return args


def main():
    hvd.init()
    args = parse_args()
    keras.utils.set_random_seed(args.seed + hvd.rank())  # different weights, until rank 0's are broadcast

    (images, labels), test = load_digits()
    model = network()
    # Horovod's rule is to multiply the learning rate by hvd.size(). Not here:
    # more ranks make each rank's batch smaller, and the whole batch stays the same.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])

    if hvd.rank() == 0:
        print(f"training on {len(images)} digits, {hvd.size()} rank(s), batches of {args.batch_size}", flush=True)
    losses = Losses()
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(args.lr, lambda epoch: 0.5 ** (epoch // 5)),
        losses,
    ]
    model.fit(
        part(images, args.batch_size),
        part(labels, args.batch_size),
        batch_size=args.batch_size // hvd.size(),
        epochs=args.epochs,
        shuffle=False,  # each batch is the same whatever the number of ranks
        callbacks=callbacks,
        verbose=2 if hvd.rank() == 0 else 0,
    )
    right = float(model.evaluate(*test, verbose=0)[1])
    if hvd.rank() == 0:
        print(f"test accuracy {right:.4f} ({len(test[0])} digits that no rank has trained on), {hvd.size()} rank(s)")
        if args.save:
            model.save(args.save)
        if args.loss_log:
            lines = (json.dumps({"epoch": epoch, "loss": loss}) for epoch, loss in enumerate(losses.curve))
            Path(args.loss_log).write_text("".join(line + "\n" for line in lines))
    hvd.shutdown()


if __name__ == "__main__":
    main()
