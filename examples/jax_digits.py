"""Trains a small network on handwritten digits with JAX, data-parallel.

    horovodrun -np 2 python examples/jax_digits.py

Runs alone too (``python examples/jax_digits.py``). The whole step is one compiled program, the sum over the ranks
included. The batch size is that of all ranks together, so the loss curve does not depend on their number.
"""

import argparse
import gzip
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import horovod.jax as hvd

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
TRAIN_SIZE = 1500  # of 1797; divisible by 2, 3 and 4, so that no rank gets an image twice
SIZES = (64, 128, 64, 10)


def load_digits():
    """The training and the test set, the same on every rank."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, labels = table[:, :64] / 16, table[:, 64].astype(np.int32)
    return (images[:TRAIN_SIZE], labels[:TRAIN_SIZE]), (images[TRAIN_SIZE:], labels[TRAIN_SIZE:])


def network(key):
    """Random weights and biases."""
    keys = jax.random.split(key, len(SIZES))
    return [
        {"weight": jax.random.normal(k, (n, m)) * (2 / n) ** 0.5, "bias": jnp.zeros(m)}
        for k, n, m in zip(keys, SIZES, SIZES[1:])
    ]


def logits(layers, images):
    x = images
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    return x @ layers[-1]["weight"] + layers[-1]["bias"]


def loss_of(layers, images, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(layers, images)), labels[:, None], axis=1)
    return -chosen.mean()


@jax.jit
def step(layers, velocity, images, labels, rate):
    """One step of SGD with momentum. Returns the loss over all ranks, too."""
    loss, gradients = jax.value_and_grad(loss_of)(layers, images, labels)
    loss, gradients = hvd.allreduce((loss, gradients), name="step")
    velocity = jax.tree_util.tree_map(lambda v, g: 0.9 * v - rate * g, velocity, gradients)
    return jax.tree_util.tree_map(jnp.add, layers, velocity), velocity, loss


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=60, help="images per step, of all ranks together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--loss-log", metavar="FILE", help="where rank 0 writes the loss of each step, as JSON lines")
    args = parser.parse_args()
    if args.batch_size < 1 or args.batch_size % hvd.size() != 0:
        parser.error(f"--batch-size {args.batch_size} cannot be split evenly over {hvd.size()} ranks")
    return args


def main():
    hvd.init()
    args = parse_args()
    (images, labels), (test_images, test_labels) = load_digits()
    layers = network(jax.random.PRNGKey(args.seed + hvd.rank()))  # different everywhere, until rank 0's are broadcast
    layers = hvd.broadcast(layers, root_rank=0, name="layers")
    velocity = jax.tree_util.tree_map(jnp.zeros_like, layers)

    if hvd.rank() == 0:
        print(f"training on {len(images)} digits, {hvd.size()} rank(s), batches of {args.batch_size}", flush=True)
    mine = args.batch_size // hvd.size()
    curve = []
    for epoch in range(args.epochs):
        order = np.random.RandomState(args.seed + epoch).permutation(len(images))  # the same on all ranks
        first = len(curve)
        for start in range(0, len(images) - args.batch_size + 1, args.batch_size):
            batch = order[start + hvd.rank() * mine :][:mine]
            layers, velocity, loss = step(layers, velocity, images[batch], labels[batch], args.lr)
            curve.append(float(loss))
        right = float((logits(layers, test_images).argmax(1) == test_labels).mean())
        if hvd.rank() == 0:
            mean = np.mean(curve[first:])
            print(f"epoch {epoch + 1:2d}/{args.epochs}  loss {mean:.4f}  test accuracy {right:.4f}", flush=True)
    weights = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree_util.tree_leaves(layers)])
    same = all(np.array_equal(other, weights) for other in hvd.allgather_object(weights))
    if hvd.rank() == 0:
        print(
            f"test accuracy {right:.4f} ({len(test_images)} digits that no rank has trained on), {hvd.size()} rank(s)"
        )
        if args.loss_log:
            lines = (json.dumps({"step": i, "loss": loss}) for i, loss in enumerate(curve))
            Path(args.loss_log).write_text("".join(line + "\n" for line in lines))
    hvd.shutdown()
    if not same:
        raise SystemExit("the ranks ended with different weights")


if __name__ == "__main__":
    main()
