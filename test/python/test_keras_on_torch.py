"""Keras 3 on PyTorch: training equals one process with the whole batch."""

import copy
import os

import keras_models as models
import keras_variants as variants
import numpy as np
import pytest
import torch

keras = None
if int(torch.__version__.partition(".")[0]) >= 2:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    try:
        import keras
    except ImportError:
        pass


def test_gradients_are_rounded_between_hosts_only(job):
    """As in horovod.torch: the meaning of a compression does not depend on the front end. Needs no Keras."""
    from horovod._keras._torch import Torch
    from horovod.common._options import Options

    fine = 1 + 2.0**-12  # no 16-bit float
    one_host = os.environ.get("GOROVOD_TRANSPORT") != "tcp" and job.local_size() == job.size()
    expected = fine if job.size() == 1 or one_host else 1.0
    for compression in (job.Compression.fp16, job.Compression.bf16):
        for groups in (None, 1):
            options = Options(compression, gradient_predivide_factor=2.0, groups=groups)
            options.check_for_keras(Torch().check_compression)
            variables = [torch.zeros(3), torch.zeros(2, dtype=torch.float64)]
            gradients = [torch.full_like(v, fine) for v in variables]
            applied = Torch.Gradients("rounded", options).apply(None, gradients, variables, list)
            for gradient, variable in zip(applied, variables):
                torch.testing.assert_close(gradient, torch.full_like(variable, expected), rtol=1e-6, atol=0)


@pytest.fixture
def hvd(job):
    if not hasattr(keras, "ops") or keras.backend.backend() != "torch":
        pytest.skip("needs PyTorch 2 and Keras 3 on it")
    import horovod.keras

    return horovod.keras


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_fit_equals_one_process(hvd, kind):
    want = models.alone(keras, models.make_optimizer(keras, kind))
    model = models.dense(keras)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, kind), groups=2), models.loss(keras))
    models.set_weights(model, seed=hvd.rank())
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(float(model.optimizer.learning_rate), 1.0),
    ]
    models.fit(model, hvd, callbacks=callbacks)
    models.assert_same_weights(model.get_weights(), want)


@pytest.mark.parametrize("average", [False, True])
def test_backward_passes_per_step(hvd, average):
    model = models.dense(keras)
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    model.compile(optimizer, models.loss(keras))
    model.fit(
        models.part(models.X, hvd),
        models.part(models.Y, hvd),
        batch_size=models.BATCH // hvd.size() // 2,
        epochs=1,
        shuffle=False,
        verbose=0,
    )
    assert int(optimizer.iterations) == 2 * models.STEPS
    want = models.alone(keras, keras.optimizers.SGD(0.1 if average else 0.2), epochs=1)
    models.assert_same_weights(model.get_weights(), want)


def test_local_layers(hvd):
    model = models.dense(keras)
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=[model.layers[1]])
    before = model.get_weights()
    gradients = [torch.full(w.shape, hvd.rank() + 1.0) for w in before]
    optimizer.apply(gradients, model.trainable_variables)
    everyone, mine = (hvd.size() + 1) / 2, (hvd.rank() + 1) / hvd.size()
    for old, new, want in zip(before, model.get_weights(), [everyone, everyone, mine, mine]):
        np.testing.assert_allclose(old - new, np.full(old.shape, want), rtol=1e-5, atol=1e-6)


def test_values_and_state(hvd):
    n, r = hvd.size(), hvd.rank()
    np.testing.assert_allclose(hvd.allreduce([1.0, r]), [1, (n - 1) / 2])
    np.testing.assert_allclose(hvd.allgather(np.array([[r]])).ravel(), range(n))
    assert all(isinstance(result, torch.Tensor) for result in (hvd.allreduce([1.0]), hvd.broadcast([1.0], 0)))
    np.testing.assert_allclose(hvd.broadcast([r], n - 1), [n - 1])
    np.testing.assert_allclose(hvd.reducescatter(np.ones((n, 2)), op=hvd.Sum), [[n] * 2])
    with pytest.raises(RuntimeError):
        hvd.broadcast_global_variables(0)
    model = models.dense(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), models.loss(keras))
    state = hvd.elastic.KerasState(model, batch=r)
    state.sync()
    assert state.batch == 0
    start = model.get_weights()
    models.set_weights(model, seed=9)
    state.restore()
    models.assert_same_weights(model.get_weights(), start)


def test_saved_models(hvd, tmp_path):
    model = models.dense(keras)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, "SGD")), models.loss(keras))
    models.fit(model, hvd, epochs=1)
    model.save(tmp_path / "model.keras")
    plain, again = keras.models.load_model(tmp_path / "model.keras"), hvd.load_model(tmp_path / "model.keras")
    assert isinstance(plain.optimizer, keras.optimizers.SGD)
    assert not isinstance(plain.optimizer, type(again.optimizer))
    models.fit(plain, epochs=1)
    models.fit(again, hvd, epochs=1)
    models.assert_same_weights(again.get_weights(), plain.get_weights())


@pytest.mark.parametrize("where", ["alone", "around", "inside"])
@pytest.mark.parametrize("name", variants.NAMES)
def test_nothing_is_lost(hvd, name, where):
    """See test/tensorflow/test_keras_whole_optimizer.py."""
    variants.check(keras, hvd, "3", name, where, torch.from_numpy)


@pytest.mark.parametrize("make", [copy.deepcopy, lambda o: type(o).from_config(o.get_config())])
def test_copies_stay_distributed(hvd, make):
    case = variants.new_case(keras, "3", torch.from_numpy)
    variants.subtracts_average(hvd, case, make(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))))
