"""Elastic training of sparse tables: worker 1 dies between two commits, and a newcomer takes its place.

MODE says how it trains: "tables" by tensornet's operations and a layer of its own, "model" by Keras. Step s changes the
layer's rows of the keys 0 and 1 + s by -1, whatever the number of ranks.
"""

import os
import signal
import time

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
from horovod.tensorflow import sparse

STEPS, EVERY, DIES_AT, SIZE = 16, 5, 8, 3
worker = int(os.environ["GOROVOD_ELASTIC_WORKER"])
mode = os.environ["MODE"]

hvd.init()
users = sparse.ShardedEmbedding(
    2, optimizer="sgd", lr=lambda n: 1.0, init="zeros", op=hvd.Average, table_name="users", name="users"
)
opt = sparse.AdaGrad(0.5 + (worker == 3))  # a newcomer takes the others' rate
words = sparse.create_sparse_table(opt, "words", 2)
room = tf.Variable(tf.zeros([8, 2]))
ops = sparse.gen_sparse_table_ops
try:
    users(tf.constant([1]))
except RuntimeError as e:
    print(f"worker {worker} outside: {e}", flush=True)
try:
    tf.function(lambda: ops.sparse_table_pull([room], [tf.constant([5], tf.int64)], words))()
except tf.errors.OpError as e:
    print(f"worker {worker} in a function: {e}", flush=True)


@tf.function
def push_words(keys):
    [index] = ops.sparse_table_pull([room], [keys], words)
    with tf.control_dependencies([index]):
        ops.sparse_table_push([keys], [tf.ones([2, 2])], [tf.zeros_like(keys)], words)


@tf.function
def push_users(keys):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(users(keys, training=True))
    tape.gradient(loss, [])


def rows_of_words():
    keys = tf.range(STEPS + 1, dtype=tf.int64)
    matrix = tf.Variable(tf.zeros([STEPS + 1, 2]))
    ops.sparse_table_pull([matrix], [keys], words)
    return matrix.numpy()


def check(state):
    rows = users(tf.range(STEPS + 1), training=False).numpy()
    want = np.zeros(STEPS + 1)
    want[0], want[1 : 1 + state.step] = -state.step, -1
    np.testing.assert_allclose(rows, np.stack([want, want], 1), atol=1e-4)
    if mode == "tables" and state.step in (EVERY, 2 * EVERY, 3 * EVERY):
        np.testing.assert_array_equal(rows_of_words(), state.rows)
        assert opt.learning_rate == 0.5


def wait_for_all(state):
    """The last step is one of all."""
    while state.step == STEPS - 1 and hvd.size() < SIZE:
        time.sleep(0.05)
        state.check_host_updates()


@hvd.elastic.run
def train(state):
    print(f"worker {worker} from {state.step} as {hvd.rank()} of {hvd.size()}", flush=True)
    check(state)
    while state.step < STEPS:
        wait_for_all(state)
        keys = tf.constant([0, 1 + state.step], tf.int64)
        if (worker, state.step) == (1, DIES_AT):
            os.kill(os.getpid(), signal.SIGKILL)
        push_users(keys)
        if mode == "tables":
            push_words(keys)
        state.step += 1
        if state.step % EVERY == 0:
            state.rows = rows_of_words() if mode == "tables" else None
            state.commit()
        elif mode == "model":
            state.check_host_updates()
    check(state)


if mode == "tables":
    state = hvd.elastic.TensorFlowState([room], tables=[users, words], step=0, rows=None)
    for bad in (users, 10**9, True):
        try:
            state.tables = [words, bad if bad is not users else "users"]
        except TypeError as e:
            print(f"worker {worker} refused: {e}", flush=True)
else:
    keys = tf.keras.Input((2,), dtype="int64")
    dense = tf.keras.layers.Dense(1)
    model = tf.keras.Model(keys, dense(tf.keras.Sequential([users, tf.keras.layers.Flatten()])(keys)))
    state = hvd_keras.elastic.KerasState(model, tf.keras.optimizers.SGD(0.1), tables=[words], step=0, rows=None)
train(state)
print(f"worker {worker} done: {state.step} of {STEPS} steps", flush=True)
