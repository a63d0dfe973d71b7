"""The definitions of the collectives, in numpy: the input of every rank, and the result that each should get."""

import functools
import operator

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

NUMBERS = [tf.uint8, tf.int8, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64]
ANY = [*NUMBERS, tf.uint16, tf.int16, tf.bool]
PARTS = [t for t in NUMBERS if t not in (tf.uint8, tf.int8)]
FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
SHAPES = [(), (1,), (7,), (3, 4), (0, 3), (2, 3, 5)]

_COMBINE = {"Sum": operator.add, "Min": np.minimum, "Max": np.maximum, "Product": operator.mul}


def of_rank(rank, shape, dtype, seed=0):
    """The input of ``rank``: small whole numbers, so that no sum rounds in any dtype; unsigned ones from 0 on."""
    numbers = np.random.RandomState(1000 * seed + rank).randint(0 if dtype.is_unsigned else -2, 4, shape)
    return np.asarray(numbers).astype(dtype.as_numpy_dtype)


def of_all(shape, dtype, seed=0, ranks=None):
    """What each of ``ranks`` (all) has, in order."""
    return [of_rank(rank, shape, dtype, seed) for rank in (range(hvd.size()) if ranks is None else ranks)]


def reduced(inputs, op):
    """The reduction, in the inputs' dtype; an average of integers is rounded towards zero, as in Horovod."""
    dtype = inputs[0].dtype
    wide = [x.astype(np.float64) for x in inputs]
    result = functools.reduce(_COMBINE["Sum" if op == "Average" else op], wide)
    if op == "Average":
        result = result / len(inputs)
        if dtype.kind in "iu":
            result = np.trunc(result)
    return np.asarray(result).astype(dtype)


def parts(array, n):
    """``array`` cut into rows for ``n`` ranks: the first ones get one more if they cannot be equal."""
    return np.array_split(array, n)


def check(result, expected, exact=True):
    """Fails unless ``result``, a tensor or array, has the dtype, shape and values of ``expected``."""
    result = np.asarray(result.numpy() if hasattr(result, "numpy") else result)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    tolerance = 0 if exact else {2: 1e-2, 4: 1e-6, 8: 1e-12}[expected.dtype.itemsize]
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


# ---- the three ways to run an operation: each takes a function of tensors and arrays for it, returns arrays


def eagerly(function, *arrays):
    """Eagerly."""
    return tf.nest.map_structure(lambda t: t.numpy(), function(*[tf.convert_to_tensor(a) for a in arrays]))


def in_function(function, *arrays):
    """In a tf.function, whose first execution traces it."""
    traced = tf.function(lambda *tensors: function(*tensors), autograph=False)
    return tf.nest.map_structure(lambda t: t.numpy(), traced(*[tf.convert_to_tensor(a) for a in arrays]))


def in_session(function, *arrays):
    """In a graph of TensorFlow 1, with one thread for operations."""
    with tf.Graph().as_default() as graph:
        inputs = [tf.compat.v1.placeholder(tf.as_dtype(a.dtype), a.shape) for a in arrays]
        outputs = function(*inputs)
        return run(graph, outputs, dict(zip(inputs, arrays)))


def run(graph, fetches, feed=None):
    """Runs ``fetches`` in a session of ``graph``, with one thread for operations."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        return session.run(fetches, feed)


MODES = [eagerly, in_function, in_session]
