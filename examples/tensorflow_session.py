"""Horovod's first example, with a small model in place of its dots: a graph of TensorFlow 1 and a session.

horovodrun -np 2 python examples/tensorflow_session.py
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

DATA = Path(__file__).parent / "data" / "digits.csv.gz"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--checkpoints", metavar="DIR", help="where rank 0 saves checkpoints; training goes on from them")
args = parser.parse_args()
tf.disable_v2_behavior()

# Initialize Horovod
hvd.init()

# Pin GPU to be used to process local rank (one GPU per process)
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())

# Build model: each rank trains on its own digits
with gzip.open(DATA, "rt") as file:
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)[hvd.rank() :: hvd.size()]
data = tf.data.Dataset.from_tensor_slices((table[:, :64] / 16, table[:, 64].astype(np.int64)))
data = data.shuffle(len(table), seed=hvd.rank()).repeat().batch(50)
images, labels = tf.data.make_one_shot_iterator(data).get_next()
weights = tf.get_variable("weights", [64, 10])
bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
logits = tf.matmul(images, weights) + bias
loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
opt = tf.train.AdagradOptimizer(0.1 * hvd.size())

# Add Horovod Distributed Optimizer
opt = hvd.DistributedOptimizer(opt)

# Add hook to broadcast variables from rank 0 to all other processes during
# initialization.
hooks = [hvd.BroadcastGlobalVariablesHook(0)]

# Make training operation
global_step = tf.train.get_or_create_global_step()
train_op = opt.minimize(loss, global_step=global_step)
hooks.append(tf.train.StopAtStepHook(last_step=args.steps))
fingerprint = hvd.allgather(tf.reshape(tf.reduce_sum(tf.abs(weights)), [1]))

# Save checkpoints only on worker 0 to prevent other workers from corrupting them.
checkpoint_dir = args.checkpoints if hvd.rank() == 0 else None

# The MonitoredTrainingSession takes care of session initialization,
# restoring from a checkpoint, saving to a checkpoint, and closing when done
# or an error occurs.
with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, config=config, hooks=hooks) as mon_sess:
    while not mon_sess.should_stop():
        # Perform synchronous training.
        _, step, value, prints = mon_sess.run([train_op, global_step, loss, fingerprint])
        if hvd.rank() == 0 and step % 50 == 1:
            print(f"step {step:4d}  loss {value:.4f}", flush=True)

if hvd.rank() == 0:
    print(f"final loss {value:.4f}; weights {'equal' if len(set(prints)) == 1 else 'DIFFER'} on {hvd.size()} rank(s)")
