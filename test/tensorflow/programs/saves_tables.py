"""Run by test_tensorflow_jobs.py: trains sparse tables, or loads them, with TensorFlow or with PyTorch.

saves_tables.py {save,load} {tensorflow,torch} DIRECTORY

A job that loads has the rows of the job that has saved, whichever of the two it was, and however many ranks it had.
"""

import math
import os
import sys

import numpy as np

what, front_end, directory = sys.argv[1:]
KEYS, DIM = np.arange(-20, 20) * 2**40, 3
saves = os.path.join(directory, "sparse_table")


def tables_of_tensorflow():
    """For each table functions that save it, load it, train it, and return its rows."""
    import tensorflow as tf

    from horovod.tensorflow import sparse

    ops = sparse.gen_sparse_table_ops
    keys = tf.constant(KEYS)
    handle = sparse.create_sparse_table(sparse.AdaGrad(0.1, initial_scale=0.5), "words", DIM)
    layer = sparse.ShardedEmbedding(DIM, optimizer="adam", table_name="films", num_embeddings=None)

    def train_words():
        ops.sparse_table_push([keys], [tf.ones([len(KEYS), DIM])], [tf.zeros_like(keys)], handle)

    def train_films():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(keys, training=True))
        tape.gradient(loss, [])

    def words():
        room = tf.Variable(tf.zeros([len(KEYS), DIM]))
        [index] = ops.sparse_table_pull([room], [keys], handle)
        return room.numpy()[index.numpy()]

    films = os.path.join(saves, "films")
    return [
        (lambda: sparse.save_sparse_table(handle, directory, "bin"),
         lambda: sparse.load_sparse_table(handle, directory, "bin"), train_words, words),
        (lambda: layer.save(films), lambda: layer.load(films), train_films, lambda: layer(keys).numpy()),
    ]  # fmt: skip


def tables_of_torch():
    import torch

    import horovod.torch as hvd

    scale = 0.5 / math.sqrt(DIM)
    numbers = {"lr": 0.1, "scale": scale, "eps": 1e-8, "initial_accumulator": 0.0}
    words = hvd.ShardedEmbedding(DIM, optimizer="rowwise_adagrad", name="words", **numbers)
    films = hvd.ShardedEmbeddingBag(DIM, optimizer="adam", name="films")
    keys = torch.from_numpy(KEYS)

    def functions(module, keys, path):
        def rows():
            with torch.no_grad():
                return module(keys).numpy()

        return lambda: module.save(path), lambda: module.load(path), lambda: module(keys).sum().backward(), rows

    return [
        functions(words, keys, os.path.join(saves, "words")),
        functions(films, keys[:, None], os.path.join(saves, "films")),
    ]


if front_end == "torch":
    import horovod.torch as hvd

    hvd.init()
    tables = tables_of_torch()
else:
    import horovod.tensorflow as hvd

    hvd.init()
    tables = tables_of_tensorflow()

for number, (save, load, train, rows) in enumerate(tables):
    file = os.path.join(directory, f"rows{number}.npy")
    if what == "save":
        for _ in range(3):
            train()
        if hvd.rank() == 0:
            os.makedirs(saves, exist_ok=True)
        hvd.broadcast_object(None, root_rank=0)
        save()
        there = rows()
        if hvd.rank() == 0:
            np.save(file, there)
    else:
        load()
        np.testing.assert_array_equal(rows(), np.load(file))
        train()  # the optimizer's numbers are there, too
        assert (rows() != np.load(file)).all()
print(f"rank {hvd.rank()} of {hvd.size()}: {what} by {front_end}", flush=True)
