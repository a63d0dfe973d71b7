"""Public functions for TensorFlow and Keras tell their arguments and results, and their examples run."""

import os

import docstrings
import pytest

from horovod.tensorflow import compression

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

OF_TENSORFLOW = (
    "horovod.tensorflow",
    "horovod.tensorflow.elastic",
    "horovod.tensorflow.gradient_aggregation",
    "horovod.tensorflow.gradient_aggregation_eager",
    "horovod.tensorflow.mpi_collectives",
    "horovod.tensorflow.util",
)
OF_TABLES = ("horovod.tensorflow.sparse", "horovod.tensorflow.sparse.gen_sparse_table_ops")
OF_KERAS = ("horovod.keras", "horovod.keras.callbacks", "horovod.keras.elastic")
OF_TF_KERAS = ("horovod.tensorflow.keras", "horovod.tensorflow.keras.callbacks", "horovod.tensorflow.keras.elastic")
MEMBERS = docstrings.of((*OF_TENSORFLOW, *OF_TABLES, *OF_KERAS, *OF_TF_KERAS))
MEMBERS.update(
    {
        f"horovod.tensorflow.{c.__name__}": c
        for c in (compression.Compressor, *vars(compression.Compression).values())
        if isinstance(c, type)
    }
)


@pytest.fixture(scope="module")
def names():
    """A function that gives the names that the examples of a module may use."""
    import keras
    import numpy as np
    import tensorflow as tf

    import horovod.keras
    import horovod.tensorflow
    import horovod.tensorflow.keras
    from horovod.tensorflow import sparse

    def known(module):
        if module in OF_TENSORFLOW:
            return {"hvd": horovod.tensorflow, "tf": tf}
        if module in OF_TABLES:
            return {"hvd": horovod.tensorflow, "tf": tf, "sparse": sparse}
        hvd, of = (horovod.keras, keras) if module in OF_KERAS else (horovod.tensorflow.keras, tf.keras)
        built_model = of.Sequential([of.layers.Dense(1)])
        built_model.build((None, 2))
        return {"hvd": hvd, "keras": of, "np": np, "built_model": built_model}

    horovod.tensorflow.init()
    return known


@pytest.mark.parametrize("name", MEMBERS)
def test_arguments_and_results(name):
    assert docstrings.lacks(name, MEMBERS[name]) == []


@pytest.mark.parametrize("name", MEMBERS)
def test_examples(name, names, tmp_path):
    assert docstrings.fails(name, MEMBERS[name], names(name.rpartition(".")[0]), tmp_path) == ""
