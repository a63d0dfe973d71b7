"""The callbacks of Keras do what their formulas say."""

import keras_models as models
import numpy as np
import pytest
from keras_models import FRONT_ENDS, dense, fit, loss


@pytest.fixture(params=FRONT_ENDS)
def front(request, job):
    return models.front_end(request.param)


@pytest.fixture
def tfkeras(job):
    return models.front_end(FRONT_ENDS[0])


def compiled(hvd, keras, rate=0.1, momentum=0.9, kind="SGD"):
    model = dense(keras)
    optimizer = models.make_optimizer(keras, kind)
    optimizer.learning_rate = rate
    model.compile(hvd.DistributedOptimizer(optimizer), loss(keras))
    return model


def test_all_ranks_start_with_the_root(front):
    hvd, keras = front
    want = models.alone(keras, models.make_optimizer(keras, "SGD"))
    model = compiled(hvd, keras)
    models.set_weights(model, seed=hvd.rank())  # rank 0's are those of every test
    fit(model, hvd, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    models.assert_same_weights(model.get_weights(), want)


def test_weights_that_only_the_first_batch_makes_are_broadcast(tfkeras):
    hvd, keras = tfkeras
    keras.utils.set_random_seed(hvd.rank())
    model = dense(keras, built=False)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, "SGD")), loss(keras))
    fit(model, hvd, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    for weight in model.get_weights():
        np.testing.assert_array_equal(hvd.broadcast(weight, 0), weight)


def test_local_variables_are_not_broadcast(tfkeras):
    hvd, keras = tfkeras
    model = compiled(hvd, keras, rate=0.0)
    models.set_weights(model, seed=hvd.rank())
    own = model.get_weights()
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=model.layers[0].weights[:1])
    callback.register_local_var(model.layers[1].weights[0])
    fit(model, hvd, epochs=1, callbacks=[callback])
    now = model.get_weights()
    np.testing.assert_array_equal(now[0], own[0])
    np.testing.assert_array_equal(now[2], own[2])
    models.set_weights(model, seed=0)
    np.testing.assert_array_equal(now[3], model.get_weights()[3])


def test_metrics_are_averaged(front):
    hvd, keras = front
    logs = {"loss": 1.0 + hvd.rank(), "accuracy": np.float32(hvd.rank()), "note": "text"}
    hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    mean = (hvd.size() - 1) / 2
    assert logs == {"loss": 1.0 + mean, "accuracy": mean, "note": "text"}
    history = fit(compiled(hvd, keras), hvd, callbacks=[hvd.callbacks.MetricAverageCallback()]).history
    np.testing.assert_allclose(hvd.broadcast(history["loss"], 0), history["loss"])


def test_ranks_with_different_metrics_are_told(tfkeras):
    hvd, _ = tfkeras
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    with pytest.raises(ValueError, match="different metrics"):
        hvd.callbacks.MetricAverageCallback().on_epoch_end(0, {f"metric_{hvd.rank()}": 1.0})


def rates_of(keras):
    """A callback that notes the rate of every batch."""

    class Rates(keras.callbacks.Callback):
        rates = []

        def on_batch_end(self, batch, logs=None):
            self.rates.append(float(self.model.optimizer.learning_rate.numpy()))

    return Rates()


@pytest.mark.parametrize("kind", ["SGD", "legacy SGD"])
def test_schedule_by_a_function_with_fractions(tfkeras, kind):
    hvd, keras = tfkeras
    rates = rates_of(keras)
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda e: 1 / (1 + e), staircase=False)
    history = fit(compiled(hvd, keras, kind=kind), hvd, epochs=2, callbacks=[schedule, rates]).history
    want = [0.1 / (1 + step / models.STEPS) for step in range(2 * models.STEPS)]
    np.testing.assert_allclose(rates.rates, want, rtol=1e-5)
    np.testing.assert_allclose(history["lr"], [want[models.STEPS - 1], want[-1]], rtol=1e-5)


def test_schedule_by_a_constant_within_its_epochs(tfkeras):
    hvd, keras = tfkeras
    rates = rates_of(keras)
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, start_epoch=1, end_epoch=3)
    fit(compiled(hvd, keras, rate=0.3), hvd, epochs=4, callbacks=[schedule, rates])
    want = np.repeat([0.3, 0.1, 0.05, 0.05], models.STEPS)
    np.testing.assert_allclose(rates.rates, want, rtol=1e-5)


def test_warmup(tfkeras, capsys):
    hvd, keras = tfkeras
    n, epochs = hvd.size(), 2
    rates = rates_of(keras)
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.1 * n, warmup_epochs=epochs, verbose=1)
    fit(compiled(hvd, keras), hvd, epochs=epochs, callbacks=[warmup, rates])
    steps = epochs * models.STEPS
    want = [0.1 * n / n * ((step + 1) / models.STEPS * (n - 1) / epochs + 1) for step in range(steps)]
    np.testing.assert_allclose(rates.rates, want, rtol=1e-5)
    np.testing.assert_allclose(rates.rates[-1], 0.1 * n, rtol=1e-5)
    assert f"Epoch 2: finished gradual learning rate warmup to {0.1 * n:g}." in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["SGD", "legacy SGD"])
def test_momentum_is_corrected_when_the_rate_changes(tfkeras, kind):
    """v <- m (new / old) v - new g, by hand, on a model whose gradient is constant."""
    hvd, keras = tfkeras
    import tensorflow as tf

    model = compiled(hvd, keras, rate=0.1, kind=kind)
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda e: 0.1**e)
    schedule.set_model(model)
    weight = model.trainable_weights[0]
    place, velocity = weight.numpy().copy(), np.zeros(weight.shape, np.float32)
    for epoch in range(3):
        for batch in range(2):
            if batch == 0:
                schedule.on_epoch_begin(epoch)
            schedule.on_batch_begin(batch)
            model.optimizer.apply_gradients([(tf.ones(w.shape), w) for w in model.trainable_weights])
            schedule.on_batch_end(batch)
            rate = 0.1 * 0.1**epoch
            ratio = 0.1 if batch == 0 and epoch > 0 else 1
            velocity = 0.9 * ratio * velocity - rate
            place = place + velocity
            np.testing.assert_allclose(weight.numpy(), place, rtol=1e-4, atol=1e-5)


def test_wrong_arguments_of_schedules(tfkeras):
    hvd, _ = tfkeras
    with pytest.raises(ValueError, match="initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 0.1)
    schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5, staircase=False)
    schedule.set_params({"epochs": 1, "steps": None})
    with pytest.raises(ValueError, match="steps per epoch"):
        schedule.on_train_begin()


def test_best_model_checkpoint(front, tmp_path):
    hvd, keras = front
    model = compiled(hvd, keras)
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    with pytest.raises(ValueError, match="filepath"):
        fit(model, hvd, epochs=1, callbacks=[best])
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    # Keras 2.13 and 2.14 cannot write checkpoints in their own format.
    best.filepath = str(tmp_path / ("best.h5" if models.has_legacy(keras) else "best.keras"))
    fit(model, hvd, epochs=1, callbacks=[best])
    models.assert_same_weights(keras.models.load_model(best.filepath).get_weights(), model.get_weights())


def test_callbacks_on_a_process_set(front, evens):
    """The set's ranks become equal; the others keep their weights and their metrics."""
    hvd, keras = front
    own = models.dense(keras)
    models.set_weights(own, seed=hvd.rank())
    root = evens.ranks[-1]
    expected = models.dense(keras)
    models.set_weights(expected, seed=root if evens.included() else hvd.rank())
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(root, process_set=evens)
    average = hvd.callbacks.MetricAverageCallback(process_set=evens)
    for callback in (broadcast, average):
        callback.set_model(own)
    broadcast.on_train_begin()
    models.assert_same_weights(own.get_weights(), expected.get_weights())
    logs = {"loss": float(hvd.rank())}
    average.on_epoch_end(0, logs)
    assert logs["loss"] == (sum(evens.ranks) / len(evens.ranks) if evens.included() else hvd.rank())
    with pytest.raises(TypeError, match="process_set must be a ProcessSet"):
        hvd.callbacks.MetricAverageCallback(process_set=0)
