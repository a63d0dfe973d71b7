"""The last rank's gradient of a table has a NaN in the second of two rows."""

import os

import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
last = hvd.rank() == hvd.size() - 1
table = tf.Variable(tf.ones([6, 2]))
factors = tf.constant([[1.0], [float("nan") if last else 1.0]])
hvd.allgather(factors)
print("gathered")


def step():
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(factors * tf.gather(table, [1, 2]))
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    return gradient.values


try:
    (tf.function(step) if os.environ["MODE"] == "function" else step)()
except tf.errors.OpError as e:
    print("stopped by", " ".join(e.message.split()))
