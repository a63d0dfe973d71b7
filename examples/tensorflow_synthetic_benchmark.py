"""Images per second of a small convolutional network on random data, per rank and in all.

horovodrun -np 2 python examples/tensorflow_synthetic_benchmark.py
"""

import argparse
import time

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--batch-size", type=int, default=32, help="images per step and rank")
parser.add_argument("--image-size", type=int, default=64)
parser.add_argument("--channels", type=int, default=32, help="of the first layer; each further one has twice as many")
parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel as float16")
parser.add_argument("--num-warmup-batches", type=int, default=5)
parser.add_argument("--num-batches-per-iter", type=int, default=5)
parser.add_argument("--num-iters", type=int, default=5)
args = parser.parse_args()

hvd.init()
tf.random.set_seed(hvd.rank())
widths = [3] + [args.channels * 2**i for i in range(4)]
kernels = [tf.Variable(tf.random.normal([3, 3, a, b], stddev=(2 / (9 * a)) ** 0.5)) for a, b in zip(widths, widths[1:])]
kernels.append(tf.Variable(tf.random.normal([widths[-1], 1000], stddev=0.01)))
images = tf.random.uniform([args.batch_size, args.image_size, args.image_size, 3])
labels = tf.random.uniform([args.batch_size], 0, 1000, tf.int64)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
hvd.broadcast_variables(kernels, root_rank=0)


@tf.function
def step():
    with tf.GradientTape() as tape:
        x = images
        for kernel in kernels[:-1]:
            x = tf.nn.relu(tf.nn.conv2d(x, kernel, 2, "SAME"))
        logits = tf.reduce_mean(x, [1, 2]) @ kernels[-1]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
        kernel.assign_sub(0.01 * gradient)
    return loss


def run(batches):
    start = time.perf_counter()
    for _ in range(batches):
        loss = step()
    loss.numpy()
    return batches * args.batch_size / (time.perf_counter() - start)


def say(text):
    if hvd.rank() == 0:
        print(text, flush=True)


say(f"Batch size: {args.batch_size}")
say(f"Number of ranks: {hvd.size()}")
run(args.num_warmup_batches)
rates = []
for i in range(args.num_iters):
    rates.append(run(args.num_batches_per_iter))
    say(f"Iter #{i}: {rates[-1]:.1f} img/sec per rank")
mean, deviation = np.mean(rates), 1.96 * np.std(rates)
say(f"Img/sec per rank: {mean:.1f} +-{deviation:.1f}")
say(f"Total img/sec on {hvd.size()} rank(s): {hvd.size() * mean:.1f} +-{hvd.size() * deviation:.1f}")
