"""Trains a small convolutional network on handwritten digits, data-parallel, in a tf.function.

    horovodrun -np 2 python examples/tensorflow_digits.py

Runs alone too. The batch size is that of all ranks together, so the loss curve
does not depend on their number.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
TRAIN_SIZE = 1500  # of 1797


class Net(tf.Module):
    """Two convolutions, two layers."""

    SHAPES = [(3, 3, 1, 16), (3, 3, 16, 32), (128, 64), (64, 10)]

    def __init__(self, seed):
        super().__init__()
        random = np.random.RandomState(seed)
        self.kernels, self.biases = [], []
        for shape in self.SHAPES:
            scale = np.sqrt(2 / np.prod(shape[:-1]))
            self.kernels.append(tf.Variable((scale * random.randn(*shape)).astype(np.float32)))
            self.biases.append(tf.Variable(tf.zeros(shape[-1])))

    def __call__(self, x):
        for kernel, bias in zip(self.kernels[:2], self.biases[:2]):
            x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + bias), 2, 2, "SAME")
        x = tf.reshape(x, [-1, 128])
        x = tf.nn.relu(x @ self.kernels[2] + self.biases[2])
        return x @ self.kernels[3] + self.biases[3]


def load_digits():
    """Images and labels, those to train with first; the same on every rank."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    return table[:, :64].reshape(-1, 8, 8, 1) / 16, table[:, 64].astype(np.int64)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--loss-log", metavar="FILE", help="where rank 0 writes the loss of each step, as JSON lines")
    args = parser.parse_args()
    if args.batch_size < 1 or args.batch_size % hvd.size() != 0:
        parser.error(f"--batch-size {args.batch_size} cannot be split evenly over {hvd.size()} ranks")
    return args


def main():
    hvd.init()
    args = parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    say = print if hvd.rank() == 0 else (lambda *_, **__: None)

    images, labels = load_digits()
    model = Net(args.seed + hvd.rank())  # different weights everywhere, until rank 0's are broadcast
    momenta = [tf.Variable(tf.zeros_like(v)) for v in model.trainable_variables]
    hvd.broadcast_variables(model.trainable_variables, root_rank=0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x)))
        tape = hvd.DistributedGradientTape(tape)
        for v, m, g in zip(model.trainable_variables, momenta, tape.gradient(loss, model.trainable_variables)):
            m.assign(0.9 * m + g)
            v.assign_sub(args.lr * m)
        return hvd.allreduce(loss, name="loss")

    say(f"training on {TRAIN_SIZE} digits, {hvd.size()} rank(s), batches of {args.batch_size}", flush=True)
    share = args.batch_size // hvd.size()
    shuffle = np.random.RandomState(args.seed)
    curve, seconds, timed = [], 0.0, 0
    for epoch in range(args.epochs):
        order = shuffle.permutation(TRAIN_SIZE)
        start = time.perf_counter()
        for first in range(0, TRAIN_SIZE - args.batch_size + 1, args.batch_size):
            mine = order[first + hvd.rank() * share :][:share]
            curve.append(step(tf.constant(images[mine]), tf.constant(labels[mine])))
        curve[-1].numpy()
        if epoch > 0:  # the first one compiles
            seconds += time.perf_counter() - start
            timed += TRAIN_SIZE // args.batch_size
        right = np.argmax(model(images[TRAIN_SIZE:]), 1) == labels[TRAIN_SIZE:]
        say(f"epoch {epoch + 1:2d}/{args.epochs}  loss {curve[-1]:.4f}  test accuracy {right.mean():.4f}", flush=True)

    weights = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
    same = all(np.array_equal(weights, other) for other in hvd.allgather_object(weights))
    say(f"test accuracy          {right.mean():.4f} ({len(right)} digits that no rank has trained on)")
    if timed:
        say(f"speed                  {timed / seconds:.1f} steps/s")
    say(f"weights                {'bit-identical on all ranks' if same else 'DIFFER between ranks'}")
    if args.loss_log and hvd.rank() == 0:
        lines = (json.dumps({"step": i, "loss": float(loss)}) + "\n" for i, loss in enumerate(curve))
        Path(args.loss_log).write_text("".join(lines))
    hvd.shutdown()
    if not same:
        raise SystemExit("the ranks ended with different weights")


if __name__ == "__main__":
    main()
