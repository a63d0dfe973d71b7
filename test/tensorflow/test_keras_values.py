"""Collectives on values, the names that the front ends export, and batch normalization over all ranks."""

import keras_models as models
import numpy as np
import pytest
from keras_models import FRONT_ENDS


@pytest.fixture(params=FRONT_ENDS)
def hvd(request, job):
    return models.front_end(request.param)[0]


def test_values(hvd):
    n, r = hvd.size(), hvd.rank()
    np.testing.assert_allclose(hvd.allreduce(np.full((2, 3), float(r))), np.full((2, 3), (n - 1) / 2))
    np.testing.assert_allclose(hvd.allreduce([1.0, r], op=hvd.Sum, name="sums"), [n, n * (n - 1) / 2])
    np.testing.assert_allclose(hvd.allreduce([1.0], op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), [6.0 * n])
    np.testing.assert_allclose(hvd.allreduce([1.5], compression=hvd.Compression.fp16), [1.5])
    with pytest.deprecated_call():
        np.testing.assert_allclose(hvd.allreduce([1.0], average=False), [n])
    np.testing.assert_array_equal(np.ravel(hvd.allgather([[r]] * (r + 1))), [i for i in range(n) for _ in range(i + 1)])
    np.testing.assert_array_equal(hvd.broadcast([r, 7], n - 1, name="b"), [n - 1, 7])
    np.testing.assert_allclose(hvd.reducescatter(np.full((2 * n, 2), float(r))), np.full((2, 2), (n - 1) / 2))
    np.testing.assert_allclose(hvd.reducescatter(np.ones((n, 1)), op=hvd.Sum), [[n]])


def test_results_are_tensors(hvd):
    """Programs compute with tensors on the device that has them. In graphs the results are arrays, as in Horovod."""
    import tensorflow as tf

    for result in (hvd.allreduce([1.0]), hvd.allgather([1.0]), hvd.broadcast([1.0], 0)):
        assert tf.is_tensor(result) and result.numpy()[0] == 1
    assert tf.is_tensor(hvd.reducescatter(np.ones(hvd.size())))
    with tf.Graph().as_default(), tf.compat.v1.Session().as_default():
        assert isinstance(hvd.allreduce([1.0]), np.ndarray)


def test_values_on_a_process_set(hvd, evens):
    if hvd.rank() % 2:
        return
    ranks = evens.ranks
    mean = np.mean(ranks)
    np.testing.assert_allclose(hvd.allreduce([float(hvd.rank())], process_set=evens), [mean])
    np.testing.assert_array_equal(hvd.allgather([hvd.rank()], process_set=evens), ranks)
    np.testing.assert_array_equal(hvd.broadcast([hvd.rank()], ranks[-1], process_set=evens), ranks[-1:])
    np.testing.assert_allclose(hvd.reducescatter(np.full(len(ranks), hvd.rank()), process_set=evens), [int(mean)])


def test_global_variables_are_a_thing_of_graphs(hvd):
    with pytest.raises(RuntimeError, match="does not support eager execution"):
        hvd.broadcast_global_variables(0)


def test_exports(hvd):
    missing = [name for name in hvd.__all__ if not hasattr(hvd, name)]
    assert not missing
    assert hvd.rank() < hvd.size() and hvd.gloo_built() and hvd.is_initialized()


def test_batch_normalization_is_that_of_the_whole_batch(job):
    import tensorflow as tf

    keras = tf.keras
    n = job.size()
    sizes = [3 + 2 * r for r in range(n)]  # batches of different sizes
    start = sum(sizes[: job.rank()])
    whole = np.random.RandomState(5).randn(sum(sizes), 2, 4).astype(np.float32) + 1
    mine = whole[start : start + sizes[job.rank()]]
    factor = np.random.RandomState(6).randn(*whole.shape).astype(np.float32)

    def run(layer, x, weights):
        layer.build((None, 2, 4))
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(y * weights)
        return y, tape.gradient(loss, x), layer

    want, gradient, reference = run(keras.layers.BatchNormalization(), whole, factor)
    part = slice(start, start + sizes[job.rank()])
    got, own, layer = run(job.SyncBatchNormalization(), mine, factor[part])
    np.testing.assert_allclose(got, want[part], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(own, gradient[part], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(layer.moving_mean.numpy(), reference.moving_mean.numpy(), rtol=1e-4, atol=1e-6)
    assert layer.name.startswith("sync_batch_normalization")
    for fused in (True, None):
        with pytest.raises(ValueError, match="fused"):
            job.SyncBatchNormalization(fused=fused)


def test_batch_normalization_of_numbers_far_from_zero(job):
    import tensorflow as tf

    whole = np.random.RandomState(5).randn(job.size(), 64, 2).astype(np.float32) + [0, 1000]
    layer = job.SyncBatchNormalization(epsilon=1e-6)
    got = layer(tf.constant(whole[job.rank()], tf.float32), training=True)
    want = (whole - whole.mean((0, 1))) / whole.std((0, 1))
    np.testing.assert_allclose(got, want[job.rank()], atol=2e-3)


def test_batch_normalization_in_a_model(job):
    hvd, keras = models.front_end(FRONT_ENDS[0])

    def model(layer):
        made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(6), layer, keras.layers.Dense(3)])
        made.layers[0].set_weights([np.random.RandomState(2).randn(4, 6), np.zeros(6)])
        made.layers[2].set_weights([np.random.RandomState(3).randn(6, 3), np.zeros(3)])
        return made

    want = models.alone(keras, keras.optimizers.SGD(0.1), model(keras.layers.BatchNormalization()))
    distributed = model(job.SyncBatchNormalization())
    distributed.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), models.loss(keras))
    models.fit(distributed, hvd)
    for got, expected in zip(distributed.get_weights(), want):
        np.testing.assert_allclose(got, expected, rtol=5e-3, atol=1e-3)


def test_models_that_differ_are_named(hvd):
    import tensorflow as tf

    import horovod.tensorflow
    from horovod.common.exceptions import ConsistencyError

    last = hvd.rank() == hvd.size() - 1
    model = tf.Module()
    model.same, model.other = tf.Variable([1.0, 2.0], name="same"), tf.Variable([[1, 2 + last]], name="other")
    for check in (hvd.check_consistency, horovod.tensorflow.check_consistency):
        check([model.same])
        check({"x": model.same})
        if hvd.size() > 1:
            with pytest.raises(ConsistencyError, match="other"):
                check(model)
        if hvd.size() == 2:
            for other, words in (
                ({}, "rank 1 has no x, which is float32 [2] on rank 0"),
                ({"x": tf.ones([3])}, "x is float32 [2] on rank 0, float32 [3] on rank 1"),
                ({"x": tf.ones([2], tf.float64)}, "x is float32 [2] on rank 0, float64 [2] on rank 1"),
            ):
                with pytest.raises(ConsistencyError) as told:
                    check(other if hvd.rank() else {"x": tf.ones([2])})
                assert str(told.value) == words
        with pytest.raises(TypeError):
            check(3)
