"""The layer whose rows are divided among the ranks, against Keras' own Embedding on one rank."""

import keras_models as models
import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow import sparse

pytestmark = pytest.mark.usefixtures("job")

KEYS, DIM = 40, 3


def batch(rank, step, shape=(4, 5)):
    """The keys and factors of a rank in a step: the same wherever they are made."""
    random = np.random.RandomState(1000 * step + rank)
    return random.randint(KEYS, size=shape), random.randn(*shape, DIM).astype(np.float32)


def all_rows(layer, keys=KEYS):
    """The rows of all keys, which this neither makes nor trains."""
    return layer(tf.range(keys), training=False).numpy()


def push(layer, keys, factors=1.0, compiled=False):
    """A step of training with the loss Σ rows · factors."""

    def step(keys, factors):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(keys, training=True) * factors)
        tape.gradient(loss, layer.trainable_weights)

    (tf.function(step) if compiled else step)(tf.constant(keys), tf.constant(factors))


@pytest.mark.parametrize("shape", [(4, 5), (7,), (2, 1, 3), (0,)], ids=str)
def test_rows_have_the_keys_shape(shape):
    layer = sparse.ShardedEmbedding(DIM, seed=3)
    keys, _ = batch(hvd.rank(), 0, shape)
    rows = layer(tf.constant(keys, tf.int32))
    assert rows.shape == (*shape, DIM) and rows.dtype == tf.float32
    np.testing.assert_array_equal(rows, all_rows(layer)[keys])
    assert tuple(layer.compute_output_shape(shape)) == (*shape, DIM) and layer.weights == []


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("op", ["Sum", "Average"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad"])
def test_training_is_keras_own(optimizer, op, compiled):
    own = {"SGD": {}, "Adagrad": {"initial_accumulator": 0.1, "eps": 1e-7}}[optimizer]
    layer = sparse.ShardedEmbedding(DIM, KEYS, optimizer=optimizer.lower(), lr=0.1, op=getattr(hvd, op), **own)
    weight = tf.Variable(all_rows(layer))
    steps = getattr(tf.keras.optimizers, optimizer)(0.1)
    assert layer.local_rows() == 0
    for step in range(5):
        push(layer, *batch(hvd.rank(), step), compiled=compiled)
        with tf.GradientTape() as tape:
            theirs = [batch(r, step) for r in range(hvd.size())]
            loss = tf.add_n([tf.reduce_sum(tf.gather(weight, k) * f) for k, f in theirs])
            loss /= hvd.size() if op == "Average" else 1
        steps.apply_gradients([(tf.convert_to_tensor(tape.gradient(loss, weight)), weight)])
        np.testing.assert_allclose(all_rows(layer), weight, atol=1e-5)
    rows = hvd.allreduce(layer.local_rows(), op=hvd.Sum, name="rows")
    assert rows == len({k for r in range(hvd.size()) for s in range(5) for k in batch(r, s)[0].ravel()})


def test_same_bits_in_each_run():
    """Also of gradients that many threads could add up."""
    layers = [sparse.ShardedEmbedding(8, optimizer="adam", lr=0.1, init="zeros") for _ in range(2)]
    random = np.random.RandomState(hvd.rank())
    for _ in range(3):
        keys, factors = random.randint(50, size=5000), random.randn(5000, 8).astype(np.float32)
        for layer, compiled in zip(layers, [False, True]):
            push(layer, keys, factors, compiled)
    rows = all_rows(layers[0], 50)
    np.testing.assert_array_equal(rows, all_rows(layers[1], 50))
    np.testing.assert_array_equal(hvd.allgather(rows[None]), np.broadcast_to(rows, [hvd.size(), 50, 8]))


def test_training_says_what_happens():
    """True makes rows, None trains those that have gradients, False only looks."""
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros")
    for training, made, moved in [(False, 0, 0), (None, 1, -1), (False, 1, -1), (True, 1, -2)]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([7]), training=training))
        assert tape.gradient(loss, []) == []
        assert hvd.allreduce(layer.local_rows(), op=hvd.Sum, name="made") == made
        assert all_rows(layer, 8)[7] == moved * hvd.size()
    layer(tf.constant([8, 9]), training=True)
    assert hvd.allreduce(layer.local_rows(), op=hvd.Sum, name="made") == 3


def test_a_tape_around_a_function():
    """The gradient's own graph runs the pushes, one after the other."""
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=lambda n: 2.0**-n, init="zeros")
    weight = tf.Variable(1.0)
    twice = tf.function(lambda k: (tf.reduce_sum(layer(k)) + 3 * tf.reduce_sum(layer(k[:1]))) * weight)
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = twice(tf.constant([4, 5]))
        assert tape.gradient(loss, weight).shape == []
    rows = all_rows(layer, 6)[:, 0] / hvd.size()
    assert rows[5] in (-1.25, -0.625) and rows[4] in (rows[5] - 3 * (1.875 - abs(rows[5])), -3.75 - 2 * rows[5])


def test_several_inputs_travel_together():
    pushes = []
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=lambda n: pushes.append(n) or 1.0, init="zeros")
    with tf.GradientTape() as tape:
        rows = layer({"films": tf.constant([[1, 2], [2, 2]]), "seen": tf.constant([2], tf.uint8)}, training=True)
        loss = tf.reduce_sum(rows["films"]) + 10 * tf.reduce_sum(rows["seen"])
    tape.gradient(loss, [])
    assert all_rows(layer, 3)[:, 0].tolist() == [0, -hvd.size(), -13 * hvd.size()]
    with tf.GradientTape() as tape:
        first, _ = layer((tf.constant([1]), tf.constant([2])), training=True)
        loss = tf.reduce_sum(first)
    tape.gradient(loss, [])
    assert all_rows(layer, 3)[:, 0].tolist() == [0, -2 * hvd.size(), -13 * hvd.size()]
    assert pushes == [0, 0, 1]  # the first one is the layer's


def test_padding():
    layer = sparse.ShardedEmbedding(DIM, KEYS, padding_idx=3, optimizer="sgd", lr=1.0)
    keys = np.array([[3, 4], [4, 3]])
    rows = layer(keys).numpy()
    assert not rows[0, 0].any() and not rows[1, 1].any() and (rows[0, 1] == rows[1, 0]).all() and rows[0, 1].any()
    push(layer, keys)
    np.testing.assert_allclose(layer(keys)[0, 1], rows[0, 1] - 2 * hvd.size(), 1e-6)
    assert not layer(tf.constant([3])).numpy().any()


def test_the_rate_is_set_between_steps():
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros")
    push(layer, [9], compiled=True)
    layer.lr = 4.0
    push(layer, [9], compiled=True)
    assert layer.lr == 4.0 and all_rows(layer, 10)[9] == -5 * hvd.size()


def test_fit():
    """In a model of Keras, whose optimizer is distributed."""
    front, keras = models.front_end("horovod.tensorflow.keras")
    layer = sparse.ShardedEmbedding(8, optimizer="adam", lr=0.05, name="users")
    inputs = keras.Input((2,), dtype="int64")
    head = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(1))
    model = keras.Model(inputs, head(keras.layers.Flatten()(layer(inputs))))
    assert len(model.weights) == 2
    optimizer = front.DistributedOptimizer(keras.optimizers.Adam(0.05))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    keys = np.arange(hvd.rank(), 64, hvd.size())[:, None] * np.array([[1 << 33, -(1 << 40)]])
    wanted = ((keys[:, 0] >> 33) % 2).astype(np.float32)[:, None]
    history = model.fit(keys, wanted, batch_size=8, epochs=12, shuffle=False, verbose=0)
    assert history.history["loss"][-1] < 0.05 < 0.3 < history.history["loss"][0]
    assert model.evaluate(keys, wanted, verbose=0) < 0.05
    kernel = head.weights[0].numpy()
    np.testing.assert_array_equal(hvd.allgather(kernel[None]), np.broadcast_to(kernel, [hvd.size(), 16, 1]))
    assert hvd.allreduce(layer.local_rows(), op=hvd.Sum, name="rows") == 127  # 0 stands in both columns
    model.predict(keys + 1, verbose=0)
    assert hvd.allreduce(layer.local_rows(), op=hvd.Sum, name="rows") == 127


def test_other_types():
    layer = sparse.ShardedEmbedding(2, dtype="mixed_bfloat16", optimizer="sgd", lr=1.0, init="zeros")
    push(layer, [5], tf.ones([1, 2], tf.bfloat16))
    rows = layer(tf.constant([5]))
    assert rows.dtype == tf.bfloat16 and float(rows[0, 0]) == -hvd.size()
    layer = sparse.ShardedEmbedding(2, dtype="mixed_float16")
    with pytest.raises(NotImplementedError, match="with float16 losses are scaled"):
        layer(tf.constant([5]), training=True)
    assert layer(tf.constant([5]), training=False).dtype == tf.float16


def test_configuration():
    layer = sparse.ShardedEmbedding(2, 50, "adam", lr=0.5, beta1=0.5, padding_idx=0, name="films", seed=4)
    copy = sparse.ShardedEmbedding.from_config(layer.get_config())
    assert copy.name == "films" and copy.lr == 0.5 and copy.get_config() == layer.get_config()
    inputs = tf.keras.Input((3,), dtype="int64")
    model = tf.keras.models.model_from_json(tf.keras.Model(inputs, layer(inputs)).to_json())
    assert model(tf.constant([[0, 1, 2]])).shape == (1, 3, 2)


def test_which_keys_have_rows():
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros", admit_after=2)
    for made in (0, 1):
        push(layer, [7])
        assert hvd.allreduce(layer.local_rows(), op=hvd.Sum, name="made") == made
    assert all_rows(layer, 8)[7] == -hvd.size() and layer.get_config()["admit_after"] == 2


@pytest.mark.parametrize("compression", ["fp16", "int8"])
def test_beside_compressed_gradients(compression):
    """The gradients of other variables are compressed; those of rows are not."""
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros")
    weight = tf.Variable(1.0)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(tf.constant([3, 4]), training=True)) * (1.0 + 2.0**-20) + 3 * weight
        how = getattr(hvd.Compression, compression)
        return hvd.DistributedGradientTape(tape, compression=how, op=hvd.Sum).gradient(loss, weight)

    assert float(step()) == 3 * hvd.size()
    assert all_rows(layer, 5)[3:, 0].tolist() == [-(1.0 + 2.0**-20) * hvd.size()] * 2


def test_xla_is_refused_by_name():
    layer = sparse.ShardedEmbedding(1)
    compiled = tf.function(lambda: layer(tf.constant([3]), training=False), jit_compile=True)
    with pytest.raises((tf.errors.OpError, ValueError), match="HorovodTablePull"):
        compiled()


def test_a_process_set(evens):
    if hvd.rank() % 2:
        return
    layer = sparse.ShardedEmbedding(1, optimizer="sgd", lr=1.0, init="zeros", op=hvd.Average, process_set=evens)
    push(layer, [hvd.rank(), 100], [[1.0], [2.0]])
    rows = all_rows(layer, 101)[:, 0]
    assert rows[100] == -2 and rows[evens.ranks].tolist() == [-1 / evens.size()] * evens.size()
    with pytest.raises(NotImplementedError, match="with a process_set has no configuration"):
        layer.get_config()


# ---- mistakes


def test_keys_out_of_range():
    layer = sparse.ShardedEmbedding(1, 1000)
    bad = hvd.rank() == hvd.size() - 1
    error = tf.errors.InvalidArgumentError if bad else tf.errors.FailedPreconditionError
    with pytest.raises(error, match="key 1000 at position 3 is not one of 0 to 999"):
        layer(tf.constant([0, 1, 2, 1000 if bad else 3]), training=True)
    assert layer(tf.constant([0]), training=True).shape == (1, 1)


def test_arguments():
    for make, says in [
        (lambda: sparse.ShardedEmbedding(2, op=hvd.Min), "op must be hvd.Sum or hvd.Average"),
        (lambda: sparse.ShardedEmbedding(2, optimizer="lamb"), 'optimizer is "lamb"; possible are sgd, adagrad'),
        (lambda: sparse.ShardedEmbedding(0), "dim is 0; 1 to 65536 are possible"),
        (lambda: sparse.ShardedEmbedding(2, 0), "num_embeddings must be above 0"),
        (lambda: sparse.ShardedEmbedding(2, momentum=0.9), "momentum"),
        (lambda: sparse.ShardedEmbedding(2)(tf.constant([1.5])), "keys must be integers .* not float32"),
        (lambda: sparse.ShardedEmbedding(2)(tf.constant([1], tf.uint64)), "keys must be integers .* not uint64"),
    ]:
        with pytest.raises((TypeError, ValueError), match=says):
            make()
    with tf.Graph().as_default(), pytest.raises(NotImplementedError, match="sessions use .*gen_sparse_table_ops"):
        sparse.ShardedEmbedding(2)
