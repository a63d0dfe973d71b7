"""Public functions for JAX tell their arguments and results, and their examples run."""

import os

import docstrings
import pytest

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

MEMBERS = docstrings.of(("horovod.jax", "horovod.jax.elastic"))


@pytest.mark.parametrize("name", MEMBERS)
def test_arguments_and_results(name):
    assert docstrings.lacks(name, MEMBERS[name]) == []


@pytest.mark.parametrize("name", MEMBERS)
def test_examples(name, tmp_path):
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()
    assert docstrings.fails(name, MEMBERS[name], {"hvd": hvd, "jnp": jnp}, tmp_path) == ""
