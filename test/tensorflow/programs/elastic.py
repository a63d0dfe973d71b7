"""Elastic training that worker 1 leaves by SIGKILL in the middle of a step; MODE says how it trains.

Where it is possible, operations have names without "Horovod": their errors must be recognised, too.
"""

import importlib
import os
import signal

import tensorflow as tf

STEPS, EPOCHS = 6, 3
worker = int(os.environ["GOROVOD_ELASTIC_WORKER"])
mode = os.environ["MODE"]
hvd = importlib.import_module("horovod.tensorflow" if mode == "tape" else mode)


def die_at(epoch, step):
    if (worker, epoch, step) == (1, 1, 2):
        os.kill(os.getpid(), signal.SIGKILL)


def with_tape():
    """A tape, eagerly."""
    v = tf.Variable(tf.ones([100]))

    @hvd.elastic.run
    def train(state):
        print(f"worker {worker} from {state.epoch} in {hvd.size()}", flush=True)
        while state.epoch < EPOCHS:
            for step in range(STEPS):
                die_at(state.epoch, step)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(v * v)
                v.assign_sub(0.01 * hvd.DistributedGradientTape(tape).gradient(loss, v))
            state.epoch += 1
            state.commit()

    state = hvd.elastic.TensorFlowState([v], epoch=0)
    train(state)
    return state


def with_fit():
    """Keras's own loop, and the callbacks that keep its state."""
    keras = hvd.callbacks.MetricAverageCallback._keras
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), name="SGD"), "mse")

    class Die(keras.callbacks.Callback):
        def on_batch_begin(self, batch, logs=None):
            die_at(state.epoch, batch)

    @hvd.elastic.run
    def train(state):
        print(f"worker {worker} from {state.epoch} in {hvd.size()}", flush=True)
        callbacks = [
            Die(),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=STEPS),
        ]
        data = tf.ones([4 * STEPS, 4]), tf.ones([4 * STEPS, 3])
        model.fit(*data, batch_size=4, epochs=EPOCHS - state.epoch, verbose=0, callbacks=callbacks)

    state = hvd.elastic.KerasState(model, epoch=0)
    train(state)
    return state


hvd.init()
state = with_tape() if mode == "tape" else with_fit()
print(f"worker {worker} done: {state.epoch} epochs", flush=True)
