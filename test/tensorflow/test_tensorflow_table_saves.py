"""Saves of sparse tables, by tensornet's functions and by the layer for Keras."""

import os
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import sparse
from horovod.tensorflow.sparse.gen_sparse_table_ops import sparse_table_pull, sparse_table_push

pytestmark = pytest.mark.usefixtures("job")

KEYS, DIM = 40, 3


@pytest.fixture
def shared(tmp_path):
    """A directory that is the same on all ranks."""
    return hvd.broadcast_object(str(tmp_path), root_rank=0)


def keys_of(rank, step):
    return np.random.RandomState(100 * step + rank).randint(KEYS, size=20) * 2**33


def train(handle, steps):
    for step in steps:
        keys = tf.constant(keys_of(hvd.rank(), step))
        distinct = len(set(keys.numpy().tolist()))
        sparse_table_push([keys], [tf.fill([distinct, DIM], step + 1.0)], [tf.zeros_like(keys)], handle)


def rows_of(handle):
    room = tf.Variable(tf.zeros([KEYS, DIM]))
    [index] = sparse_table_pull([room], [tf.range(KEYS, dtype=tf.int64) * 2**33], handle)
    return room.numpy()[index.numpy()]


def rate(n):
    return 0.1 / (1 + n)


@pytest.mark.smoke
@pytest.mark.parametrize("optimizer", ["AdaGrad", "Adam", "Ftrl"])
def test_a_loaded_table_goes_on_as_the_saved_one(shared, optimizer):
    opt = getattr(sparse, optimizer)(rate)
    handle = sparse.create_sparse_table(opt, f"saved/{optimizer}", DIM)
    train(handle, range(4))
    sparse.save_sparse_table(handle, shared, "bin")
    before = rows_of(handle)
    train(handle, range(4, 6))
    after = rows_of(handle)
    assert (before != after).any()
    sparse.load_sparse_table(handle, shared, "bin")
    np.testing.assert_array_equal(rows_of(handle), before)
    train(handle, range(4, 6))
    np.testing.assert_array_equal(rows_of(handle), after)
    assert os.listdir(os.path.join(shared, "sparse_table")) == [f"saved%2F{optimizer}"]


def test_tables_with_one_path(shared):
    names = ["a/b", "a b", "a%2Fb", "..", "Wörter"]
    handles = [sparse.create_sparse_table(sparse.Adam(0.1), name, DIM) for name in names]
    for i, handle in enumerate(handles):
        train(handle, range(i + 1))
        sparse.save_sparse_table(handle, shared)
    rows = [rows_of(handle) for handle in handles]
    for handle in handles:
        train(handle, [7])
        sparse.load_sparse_table(handle, shared)
    for handle, saved in zip(handles, rows):
        np.testing.assert_array_equal(rows_of(handle), saved)
    assert len(os.listdir(os.path.join(shared, "sparse_table"))) == len(names)
    assert os.listdir(shared) == ["sparse_table"]


def test_mistakes(shared):
    handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), "mistakes", DIM)
    for use in (sparse.save_sparse_table, sparse.load_sparse_table):
        with pytest.raises(NotImplementedError, match='mode="txt" is not possible: use "bin"'):
            use(handle, shared, "txt")
        with pytest.raises(ValueError, match='mode must be "bin", not None'):
            use(handle, shared, None)
        with pytest.raises(ValueError, match="no table has the handle 123456789"):
            use(123456789, shared, "bin")
        with pytest.raises(TypeError):
            use(handle, None, "bin")
        with pytest.raises(RuntimeError, match="cannot be part of a tf.function: call it between two steps"):
            tf.function(lambda use=use: use(handle, shared))()
    with pytest.raises(OSError, match='table "mistakes" cannot be loaded: .*has no save of a table'):
        sparse.load_sparse_table(handle, shared)
    sparse.save_sparse_table(handle, shared)
    other = sparse.create_sparse_table(sparse.AdaGrad(0.1), "mistakes too", DIM + 1)
    saves = os.path.join(shared, "sparse_table")
    if hvd.rank() == 0:
        os.symlink("mistakes", os.path.join(saves, "mistakes too"))
    hvd.broadcast_object(None, root_rank=0)  # which waits for the link
    with pytest.raises(ValueError, match="the save is of a table whose name is mistakes; here it is mistakes too"):
        sparse.load_sparse_table(other, shared)


# ---- the layer for Keras


def push(layer, steps):
    for step in steps:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant(keys_of(hvd.rank(), step)), training=True) * (step + 1.0))
        tape.gradient(loss, [])


def all_rows(layer):
    return layer(tf.range(KEYS, dtype=tf.int64) * 2**33, training=False).numpy()


def test_a_layer(shared):
    layer = sparse.ShardedEmbedding(DIM, optimizer="adam", lr=rate, table_name="layer")
    push(layer, range(4))
    layer.save(shared)
    before = all_rows(layer)
    push(layer, range(4, 6))
    after = all_rows(layer)
    layer.load(shared)
    np.testing.assert_array_equal(all_rows(layer), before)
    push(layer, range(4, 6))
    np.testing.assert_array_equal(all_rows(layer), after)
    with pytest.raises(RuntimeError, match="save cannot be part of a tf.function"):
        tf.function(lambda: layer.save(shared))()
    other = sparse.ShardedEmbedding(DIM, optimizer="adam", seed=1, table_name="another layer")
    with pytest.raises(ValueError, match="the save is of a table whose name is layer; here it is another layer"):
        other.load(shared)


def test_record_batches():
    pytest.importorskip("pyarrow")
    layer = sparse.ShardedEmbedding(DIM)
    push(layer, range(3))
    batches = list(layer.record_batches(7))
    keys = [k for batch in batches for k in batch.column("key").to_pylist()]
    assert len(keys) == layer.local_rows() and max(batch.num_rows for batch in batches) <= 7
    made = {int(k) for r in range(hvd.size()) for step in range(3) for k in keys_of(r, step)}
    assert sorted(k for part in hvd.allgather_object(keys) for k in part) == sorted(made)
    rows = [row for batch in batches for row in batch.column("row").to_pylist()]
    found = layer(tf.constant(keys, tf.int64), training=False).numpy()
    np.testing.assert_array_equal(found, np.array(rows, np.float32).reshape(-1, DIM))


def test_record_batches_without_pyarrow(monkeypatch):
    layer = sparse.ShardedEmbedding(DIM)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="record_batches needs pyarrow: pip install pyarrow"):
        layer.record_batches()


def model_of(layer):
    keys = tf.keras.Input((2,), dtype="int64")
    return tf.keras.Model(keys, tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(layer(keys))))


def test_weights_of_keras_do_not_lose_rows_silently(shared):
    layer = sparse.ShardedEmbedding(DIM, table_name="warns")
    model = model_of(layer)
    name = "own.weights.h5" if hasattr(tf.keras, "ops") else "own.keras"
    path = os.path.join(shared, f"{hvd.rank()}-{name}")

    def write():
        model.save_weights(path) if path.endswith(".h5") else model.save(path)

    push(layer, range(3))
    with pytest.warns(UserWarning, match=r"no rows of sparse table 'warns', which 3 pushes have trained. Call save"):
        write()
    layer.save(os.path.join(shared, "rows"))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*sparse table")
        write()
        if path.endswith(".h5"):
            model.load_weights(path)
    push(layer, [3])
    if path.endswith(".h5"):
        with pytest.warns(UserWarning, match="rows of sparse table 'warns' after 3 pushes, and the table has had 4"):
            model.load_weights(path)
        layer.load(os.path.join(shared, "rows"))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*sparse table")
            model.load_weights(path)
