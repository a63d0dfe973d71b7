"""Elastic training by Keras' own loop with a sparse table in the model; worker 1 dies in the second epoch.

Each batch changes the row of key 5 by -1, whatever the number of ranks.
"""

import os
import signal

import numpy as np
import tensorflow as tf

import horovod.tensorflow.keras as hvd
from horovod.tensorflow import sparse

BATCHES, EPOCHS = 6, 3
worker = int(os.environ["GOROVOD_ELASTIC_WORKER"])

hvd.init()
keras = tf.keras
users = sparse.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros", op=hvd.Average, table_name="users")
keys = keras.Input((1,), dtype="int64")
row = keras.layers.Flatten()(users(keys))
model = keras.Model(keys, keras.layers.Add()([row, keras.layers.Dense(1, kernel_initializer="zeros")(row)]))
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), lambda truth, output: tf.reduce_mean(output))


class Die(keras.callbacks.Callback):
    def on_batch_begin(self, batch, logs=None):
        if (worker, state.epoch, batch) == (1, 1, 2):
            os.kill(os.getpid(), signal.SIGKILL)


def check(batches):
    found = users(tf.constant([5]), training=False).numpy().tolist()
    assert found == [[-float(batches)]], (found, batches)


@hvd.elastic.run
def train(state):
    print(f"worker {worker} from {state.epoch} in {hvd.size()}", flush=True)
    check(state.epoch * BATCHES)
    callbacks = [Die(), hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 100)]
    data = np.full((BATCHES, 1), 5), np.zeros((BATCHES, 1))
    model.fit(*data, batch_size=1, epochs=EPOCHS - state.epoch, verbose=0, callbacks=callbacks)
    check(EPOCHS * BATCHES)


state = hvd.elastic.KerasState(model, epoch=0)
train(state)
print(f"worker {worker} done: {state.epoch} epochs", flush=True)
