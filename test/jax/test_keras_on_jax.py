"""Keras 3 on JAX: training equals one process with the whole batch."""

import copy

import keras_models as models
import keras_variants as variants
import numpy as np
import pytest

keras = pytest.importorskip("keras", minversion="3")


@pytest.fixture
def hvd(job):
    if keras.backend.backend() != "jax":
        pytest.skip("Keras runs on another framework")
    import horovod.keras

    return horovod.keras


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_fit_equals_one_process(hvd, kind):
    want = models.alone(keras, models.make_optimizer(keras, kind))
    model = models.dense(keras)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, kind)), models.loss(keras))
    models.set_weights(model, seed=hvd.rank())
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    models.fit(model, hvd, callbacks=callbacks)
    models.assert_same_weights(model.get_weights(), want)


def test_values_and_state(hvd):
    np.testing.assert_allclose(hvd.allreduce([1.0, hvd.rank()]), [1, (hvd.size() - 1) / 2])
    import jax

    assert isinstance(hvd.allreduce([1.0]), jax.Array) and isinstance(hvd.broadcast([1.0], 0), jax.Array)
    np.testing.assert_allclose(hvd.reducescatter(np.ones((hvd.size(), 2)), op=hvd.Sum), [[hvd.size()] * 2])
    model = models.dense(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), models.loss(keras))
    state = hvd.elastic.KerasState(model, batch=hvd.rank())
    state.sync()
    assert state.batch == 0
    start = model.get_weights()
    models.set_weights(model, seed=9)
    state.restore()
    models.assert_same_weights(model.get_weights(), start)
    with pytest.raises(TypeError, match="compression must be one of"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression="fp16")
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2)


def stateless(case, optimizer, gradients):
    """A step as Keras' trainer makes it: values in, values out."""
    if not optimizer.built:
        optimizer.build(case.variables)
    old = [v.value for v in optimizer.variables]
    changed, state = optimizer.stateless_apply(old, gradients, [v.value for v in case.variables])
    for variable, value in zip(case.variables + optimizer.variables, list(changed) + list(state)):
        variable.assign(value)


@pytest.mark.parametrize("name", variants.NAMES)
def test_nothing_is_lost(hvd, name):
    """See test/tensorflow/test_keras_whole_optimizer.py. On JAX, a LossScaleOptimizer makes stateless steps only."""
    import jax

    variants.check(keras, hvd, "3", name, "alone", jax.numpy.asarray)
    for where in ("alone", "around", "inside"):
        variants.check(keras, hvd, "3", name, where, jax.numpy.asarray, apply=stateless)


@pytest.mark.parametrize("make", [copy.deepcopy, lambda o: type(o).from_config(o.get_config())])
def test_copies_stay_distributed(hvd, make):
    import jax

    case = variants.new_case(keras, "3", jax.numpy.asarray)
    variants.subtracts_average(hvd, case, make(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))))
