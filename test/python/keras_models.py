"""Small models and data for the tests of Keras, the same on all ranks, and the part of the data that a rank has."""

import importlib

import numpy as np
import pytest

FRONT_ENDS = ["horovod.tensorflow.keras", "horovod.keras"]
BATCH = 12  # of all ranks together
STEPS = 4

_random = np.random.RandomState(1)
X = _random.randn(STEPS * BATCH, 4).astype(np.float32)
Y = _random.randint(0, 3, STEPS * BATCH)


def front_end(name):
    """The front end and its Keras."""
    hvd = importlib.import_module(name)
    return hvd, hvd.callbacks.MetricAverageCallback._keras


def dense(keras, built=True):
    """A network of two layers."""
    layers = [keras.layers.Dense(8, activation="tanh", name="first"), keras.layers.Dense(3, name="second")]
    model = keras.Sequential([keras.layers.Input((4,)), *layers] if built else layers)
    if built:
        set_weights(model)
    return model


def set_weights(model, seed=0):
    random = np.random.RandomState(seed)
    model.set_weights([random.randn(*w.shape) for w in model.get_weights()])


def loss(keras):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def part(array, hvd):
    """This rank's rows, such that the batches of all ranks together are those of ``array``."""
    parts = array.reshape(STEPS, hvd.size(), BATCH // hvd.size(), *array.shape[1:])
    return parts[:, hvd.rank()].reshape(-1, *array.shape[1:])


def fit(model, hvd=None, epochs=2, x=X, y=Y, callbacks=(), **kwargs):
    """Train on all of the data, or, given ``hvd``, on this rank's part."""
    n = 1 if hvd is None else hvd.size()
    if hvd is not None:
        x, y = part(x, hvd), part(y, hvd)
    return model.fit(
        x, y, batch_size=BATCH // n, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks), **kwargs
    )


def alone(keras, optimizer, model=None, **kwargs):
    """The weights after one process has trained on the whole of each batch."""
    model = model or dense(keras)
    model.compile(optimizer, loss(keras))
    fit(model, **kwargs)
    return model.get_weights()


def assert_same_weights(got, want):
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-5)


def has_legacy(keras):
    return not hasattr(keras, "ops")


def optimizers(keras):
    """The module of optimizers. Keras 2.12 exports all of it only as tf.keras."""
    if not has_legacy(keras):
        return keras.optimizers
    import tensorflow as tf

    return tf.keras.optimizers


def make_optimizer(keras, kind):
    """An optimizer by its name; "legacy SGD" is one of Keras 2 only."""
    if kind.startswith("legacy"):
        if not has_legacy(keras):
            pytest.skip("Keras 3 has no legacy optimizers")
        return optimizers(keras).legacy.SGD(Halving(keras) if "schedule" in kind else 0.1, momentum=0.9)
    return {
        "SGD": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        "Adam": lambda: keras.optimizers.Adam(0.01),
        "schedule": lambda: keras.optimizers.SGD(Halving(keras)),
    }[kind]()


def Halving(keras):
    """A schedule of a class that is not registered anywhere."""

    class Schedule(optimizers(keras).schedules.LearningRateSchedule):
        def __call__(self, step):
            import tensorflow as tf

            return 0.1 * 0.5 ** tf.cast(step, tf.float32)

        def get_config(self):
            return {}

    return Schedule()
