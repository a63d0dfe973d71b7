"""Learns who clicks on what with TensorFlow: embeddings in sparse tables, in a model like DLRM (arXiv:1906.00091).

    horovodrun -np 4 python examples/tensorflow_clicks.py

The same clicks, model and options as pytorch_clicks.py, with layers of Keras and a gradient tape.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from made_up_clicks import NUMBERS, SEEN, Clicks, auc  # noqa: E402

import horovod.tensorflow as hvd  # noqa: E402
from horovod.tensorflow import sparse  # noqa: E402

TEST_BATCHES = 25


def make_model(dim, lr, seed):
    """The products of all pairs of embeddings, and what is known of the click, go through a small network."""
    keras = tf.keras
    rows = {"optimizer": "adagrad", "lr": lr, "seed": seed, "op": hvd.Average, "init": "normal", "scale": 0.05}
    user, film = keras.Input((), dtype="int64"), keras.Input((), dtype="int64")
    seen, numbers = keras.Input((SEEN,), dtype="int64"), keras.Input((NUMBERS,))
    known = keras.layers.Dense(dim)(keras.layers.Dense(16, activation="relu")(numbers))
    embedded = [
        sparse.ShardedEmbedding(dim, table_name="users", name="users", **rows)(user),
        sparse.ShardedEmbedding(dim, table_name="films", name="films", **rows)(film),
        keras.layers.GlobalAveragePooling1D()(
            sparse.ShardedEmbedding(dim, table_name="seen", name="seen", **rows)(seen)
        ),
        known,
    ]
    pairs = [keras.layers.Dot(1)([embedded[i], embedded[j]]) for i in range(4) for j in range(i)]
    hidden = keras.layers.Dense(32, activation="relu")(keras.layers.Concatenate()([known, *pairs]))
    return keras.Model([user, film, seen, numbers], keras.layers.Dense(1)(hidden))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=2048, help="clicks per step, of all ranks together")
    parser.add_argument("--dim", type=int, default=16, help="numbers of a row")
    parser.add_argument("--seed", type=int, default=1, help="of the model and the order of the clicks")
    args = parser.parse_args()

    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(args.seed)
    clicks, model = Clicks(0), make_model(args.dim, 0.1, args.seed)
    optimizer = tf.keras.optimizers.Adam(0.003)  # the rows have optimizers of their own
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function(reduce_retracing=True)
    def train(inputs, clicked):
        with tf.GradientTape() as tape:
            scores = model(inputs, training=True)[:, 0]
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(clicked, scores))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    look = tf.function(lambda inputs: model(inputs, training=False)[:, 0], reduce_retracing=True)

    began = time.perf_counter()
    first = (1 + args.seed) * 1_000_000  # each seed sees other clicks
    for step in range(args.steps):
        *inputs, clicked = map(tf.constant, clicks.batch(first + step, args.batch_size, hvd.rank(), hvd.size()))
        loss = train(inputs, clicked)
        if hvd.rank() == 0 and step % 100 == 0:
            print(f"step {step}: loss {float(loss):.3f}", flush=True)
    took = time.perf_counter() - began

    scores, truth = [], []
    for number in range(TEST_BATCHES):
        *inputs, clicked = map(tf.constant, clicks.batch(number, args.batch_size, hvd.rank(), hvd.size()))
        scores.append(look(inputs))
        truth.append(clicked)
    scores, truth = hvd.allgather(tf.concat(scores, 0)).numpy(), hvd.allgather(tf.concat(truth, 0)).numpy()
    users = model.get_layer("users").local_rows()
    rows = hvd.allreduce(np.int64(users), op=hvd.Sum, name="rows")
    if hvd.rank() == 0:
        print(f"{int(rows)} users; {args.steps / took:.0f} steps/s; AUC {auc(scores, truth):.4f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
