"""Ranks run many operations in opposite orders, with one thread for operations; ends with "finished".

MODE: threads of eager operations, a function, or a session; in the latter two control dependencies force the order of
each rank's submissions.
"""

import os
import threading

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
hvd.init()
N = 30
order = list(range(N)) if hvd.rank() % 2 == 0 else list(reversed(range(N)))
expected = np.array([i * hvd.size() for i in range(N)], np.float32)


def build():
    """The results of all operations. Only the order in which they are made and started differs between the ranks."""
    results = {}
    before = []
    for i in order:
        with tf.control_dependencies(before):
            x = tf.identity(tf.constant(float(i)))
        before = [x]  # the inputs are made one after the other, so the operations are submitted in this order
        results[i] = hvd.allreduce(x, op=hvd.Sum, name=f"op_{i}")
    return tf.stack([results[i] for i in range(N)])


def by_session():
    with tf.Graph().as_default() as graph:
        output = build()
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            for _ in range(5):
                np.testing.assert_array_equal(session.run(output), expected)


def by_function():
    function = tf.function(build, autograph=False)
    for _ in range(5):
        np.testing.assert_array_equal(function().numpy(), expected)


def by_threads():
    results = {}

    def one(i):
        results[i] = hvd.allreduce(tf.constant(float(i)), op=hvd.Sum, name=f"op_{i}").numpy()

    threads = [threading.Thread(target=one, args=[i]) for i in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal([results[i] for i in range(N)], expected)


{"session": by_session, "function": by_function, "threads": by_threads}[os.environ["MODE"]]()
print("finished")
