"""Rank 1 dies in the middle of a step; the others print after how long they got an error, and which one."""

import os
import signal
import time

import tensorflow as tf

import horovod.tensorflow as hvd

tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()
v = tf.Variable(tf.ones([100]))


def body():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v)
    gradient = hvd.DistributedGradientTape(tape).gradient(loss, v)
    v.assign_sub(0.01 * gradient)
    return tf.reduce_sum(v)


if os.environ["MODE"] == "session":
    tf.compat.v1.disable_eager_execution()
    x = hvd.allreduce(tf.ones([100]), name="step")
    session = tf.compat.v1.Session()
    step = lambda: session.run(x)  # noqa: E731
else:
    step = {"function": tf.function(body), "eager": body}[os.environ["MODE"]]
for _ in range(3):
    step()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    step()
    print("nothing happened")
except tf.errors.UnknownError as e:
    print(f"heard after {time.monotonic() - start:.3f} s: {' '.join(e.message.split())}")
