"""Distributed optimizers of Keras train as one process does with the whole batch."""

import keras_models as models
import numpy as np
import pytest
import tensorflow as tf
from keras_models import FRONT_ENDS, alone, assert_same_weights, dense, fit, loss

from horovod.tensorflow import allgather_object
from horovod.tensorflow._reduction import Reducer


@pytest.fixture(params=FRONT_ENDS)
def front(request, job):
    return models.front_end(request.param)


@pytest.fixture
def tfkeras(job):
    return models.front_end(FRONT_ENDS[0])


@pytest.mark.parametrize("kind", ["SGD", "Adam", "legacy SGD", "schedule", "legacy SGD, schedule"])
def test_fit_equals_one_process(front, kind):
    hvd, keras = front
    want = alone(keras, models.make_optimizer(keras, kind))
    model = dense(keras)
    optimizer = models.make_optimizer(keras, kind)
    distributed = hvd.DistributedOptimizer(optimizer)
    assert isinstance(distributed, type(optimizer)) and type(distributed).__name__ == type(optimizer).__name__
    model.compile(distributed, loss(keras))
    fit(model, hvd)
    assert_same_weights(model.get_weights(), want)


@pytest.mark.smoke
def test_eager_steps_equal_one_process(tfkeras, monkeypatch):
    hvd, keras = tfkeras
    traces = []
    reduce = Reducer._reduce
    monkeypatch.setattr(Reducer, "_reduce", lambda self, *args: traces.append(args) or reduce(self, *args))
    want = alone(keras, models.make_optimizer(keras, "SGD"))
    model = dense(keras)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, "SGD")), loss(keras), run_eagerly=True)
    fit(model, hvd)
    assert_same_weights(model.get_weights(), want)
    assert len(traces) == 1


@pytest.mark.parametrize("kind", ["SGD", "legacy SGD"])
def test_layers_built_after_wrapping(tfkeras, kind):
    hvd, keras = tfkeras
    want = alone(keras, models.make_optimizer(keras, kind))
    model = dense(keras, built=False)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, kind)), loss(keras))
    model.build((None, 4))
    models.set_weights(model)
    fit(model, hvd)
    assert_same_weights(model.get_weights(), want)


@pytest.mark.parametrize("kind", ["SGD", "legacy SGD"])
@pytest.mark.parametrize("average", [False, True])
def test_backward_passes_per_step(tfkeras, kind, average):
    """Two passes of half a batch equal one of the whole: the sum of their gradients is twice its gradient."""
    hvd, keras = tfkeras
    model = dense(keras)
    distributed = hvd.DistributedOptimizer(
        models.make_optimizer(keras, kind), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    model.compile(distributed, loss(keras))
    model.fit(
        models.part(models.X, hvd),
        models.part(models.Y, hvd),
        batch_size=models.BATCH // hvd.size() // 2,
        epochs=2,
        shuffle=False,
        verbose=0,
    )
    passes = 2 * 2 * models.STEPS
    assert int(distributed.iterations.numpy()) == passes

    one = models.make_optimizer(keras, kind)
    if not average:  # a gradient of twice the size is a rate of twice the size
        one.learning_rate = 0.2
    assert_same_weights(model.get_weights(), alone(keras, one))


def test_sum_groups_and_predivision(tfkeras):
    hvd, keras = tfkeras
    want = alone(keras, keras.optimizers.SGD(0.1))
    model = dense(keras)
    first = model.layers[0].trainable_weights
    for options in (
        {"op": hvd.Sum},
        {"groups": 2},
        {"groups": [list(first)]},
        {"gradient_predivide_factor": 2.0},
        {"process_set": hvd.global_process_set},
        {"name": "mine"},
    ):
        models.set_weights(model)
        rate = 0.1 / hvd.size() if "op" in options else 0.1
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(rate), **options), loss(keras))
        fit(model, hvd)
        assert_same_weights(model.get_weights(), want)


def test_the_general_front_end_forwards_everything(tfkeras, job):
    hvd, keras = tfkeras
    model = dense(keras)
    optimizer = keras.optimizers.SGD(0.1 / job.size())
    model.compile(job.DistributedOptimizer(optimizer, op=job.Sum, groups=1), loss(keras))
    fit(model, hvd)
    assert_same_weights(model.get_weights(), alone(keras, keras.optimizers.SGD(0.1)))


def test_compression_rounds_gradients(tfkeras):
    hvd, keras = tfkeras
    model = dense(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=hvd.Compression.fp16), loss(keras))
    fit(model, hvd)
    for got, want in zip(model.get_weights(), alone(keras, keras.optimizers.SGD(0.1))):
        np.testing.assert_allclose(got, want, rtol=0.05, atol=5e-3)


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_gradients(tfkeras, sparse_as_dense):
    hvd, keras = tfkeras

    def embedding():
        model = keras.Sequential(
            [keras.layers.Input((2,), dtype="int32"), keras.layers.Embedding(5, 3), keras.layers.Flatten()]
        )
        models.set_weights(model)
        return model

    x = np.random.RandomState(3).randint(0, 5, (models.STEPS * models.BATCH, 2))
    want = alone(keras, keras.optimizers.SGD(0.1), embedding(), x=x)
    model = embedding()
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sparse_as_dense=sparse_as_dense), loss(keras))
    fit(model, hvd, x=x)
    assert_same_weights(model.get_weights(), want)


def test_local_layers(job):
    import tensorflow as tf

    hvd, keras = models.front_end("horovod.keras")
    model = dense(keras)
    local = model.layers[1]
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=local)
    gradients = [np.full(w.shape, job.rank() + 1.0, np.float32) for w in model.trainable_weights]
    before = model.get_weights()
    optimizer.apply_gradients(zip([tf.constant(g) for g in gradients], model.trainable_weights))
    steps = [(b - a) / 0.1 for b, a in zip(before, model.get_weights())]
    everyone = np.mean([r + 1.0 for r in range(job.size())])
    mine = (job.rank() + 1.0) / job.size()
    for step, want in zip(steps, [everyone, everyone, mine, mine]):
        np.testing.assert_allclose(step, np.full(step.shape, want), rtol=1e-4)


def test_local_variable_that_is_not_scaled(tfkeras):
    hvd, keras = tfkeras
    model = dense(keras)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), scale_local_gradients=False)
    optimizer.register_local_var(model.trainable_weights[0])
    before = model.get_weights()
    gradients = [np.full(w.shape, hvd.rank() + 1.0, np.float32) for w in before]
    import tensorflow as tf

    optimizer.apply_gradients(zip([tf.constant(g) for g in gradients], model.trainable_weights))
    steps = [b - a for b, a in zip(before, model.get_weights())]
    np.testing.assert_allclose(steps[0], np.full(steps[0].shape, hvd.rank() + 1.0), rtol=1e-5)
    np.testing.assert_allclose(steps[1], np.full(steps[1].shape, (hvd.size() + 1) / 2), rtol=1e-5)


def test_wrong_arguments(front):
    hvd, keras = front
    sgd = keras.optimizers.SGD(0.1)
    with pytest.raises(ValueError, match="op currently only supports Average and Sum"):
        hvd.DistributedOptimizer(sgd, op=99)
    with pytest.raises(TypeError, match="compression must be one of"):
        hvd.DistributedOptimizer(sgd, compression=3)
    with pytest.raises(TypeError, match="name must be a str"):
        hvd.DistributedOptimizer(sgd, name=3)
    with pytest.raises(ValueError, match="gradient_predivide_factor must be finite"):
        hvd.DistributedOptimizer(sgd, gradient_predivide_factor=0)
    with pytest.raises(ValueError, match="groups must consist of lists"):
        hvd.DistributedOptimizer(sgd, groups=[1])
    with pytest.raises(TypeError, match="root_rank must be an integer"):
        hvd.callbacks.BroadcastGlobalVariablesCallback(1.5)
    with pytest.raises(ValueError, match="groups should be"):
        hvd.DistributedOptimizer(sgd, groups="all")
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        hvd.DistributedOptimizer(sgd, op=hvd.Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="takes an optimizer of Keras"):
        hvd.DistributedOptimizer("sgd")
    with pytest.deprecated_call():
        hvd.DistributedOptimizer(sgd, num_groups=1)
    if hasattr(hvd, "PartialDistributedOptimizer"):
        with pytest.raises(ValueError, match="local layers must be"):
            hvd.PartialDistributedOptimizer(sgd, local_layers=["dense"])
        with pytest.raises(ValueError, match="backward_passes_per_step"):
            hvd.PartialDistributedOptimizer(sgd, backward_passes_per_step=0)
        with pytest.raises(TypeError, match="backward_passes_per_step must be an int"):
            hvd.PartialDistributedOptimizer(sgd, backward_passes_per_step=1.5)
        with pytest.raises(TypeError, match="process_set must be a ProcessSet"):
            hvd.PartialDistributedOptimizer(sgd, process_set=0)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "legacy SGD"])
def test_saved_models_need_no_horovod(tfkeras, kind, suffix, tmp_path):
    hvd, keras = tfkeras
    if kind.startswith("legacy") and suffix == ".keras" and tf.__version__.startswith(("2.12.", "2.13.", "2.14.")):
        pytest.skip("this Keras cannot load its own legacy optimizers from this format")
    model = dense(keras)
    optimizer = models.make_optimizer(keras, kind)
    model.compile(hvd.DistributedOptimizer(optimizer), loss(keras))
    fit(model, hvd, epochs=1)
    file = str(tmp_path / f"model{suffix}")
    model.save(file)
    plain = keras.models.load_model(file)
    assert type(plain.optimizer) is type(optimizer)
    assert_same_weights(plain.get_weights(), model.get_weights())

    if suffix == ".h5" and not models.has_legacy(keras):
        return  # Keras 3 cannot go on with such an optimizer, with or without Horovod

    # Loaded with Horovod, training goes on as it does without it: the optimizer has its state.
    again = hvd.load_model(file)
    assert isinstance(again.optimizer, type(optimizer)) and type(again.optimizer) is not type(optimizer)
    fit(again, hvd, epochs=1)
    fit(plain, epochs=1)
    assert_same_weights(again.get_weights(), plain.get_weights())


def test_load_model_that_was_saved_without_horovod(tfkeras, tmp_path):
    hvd, keras = tfkeras
    model = dense(keras)
    model.compile(models.make_optimizer(keras, "SGD"), loss(keras))
    fit(model, epochs=1)
    file = str(tmp_path / "model.keras")
    model.save(file)
    again = hvd.load_model(file)
    fit(again, hvd, epochs=1)
    fit(model, epochs=1)
    assert_same_weights(again.get_weights(), model.get_weights())


@pytest.mark.parametrize("kind", ["SGD", "legacy SGD"])
def test_wrapping_an_optimizer_that_has_trained_keeps_its_state(tfkeras, kind):
    hvd, keras = tfkeras
    want = alone(keras, models.make_optimizer(keras, kind), epochs=2)
    model = dense(keras)
    model.compile(models.make_optimizer(keras, kind), loss(keras))
    fit(model, epochs=1)
    model.compile(hvd.DistributedOptimizer(model.optimizer), loss(keras))
    fit(model, hvd, epochs=1)
    assert_same_weights(model.get_weights(), want)


def loss_scaling(keras, optimizer):
    module = keras.mixed_precision if models.has_legacy(keras) else keras.optimizers
    return module.LossScaleOptimizer(optimizer)


def scale_of(optimizer):
    return float(getattr(optimizer, "loss_scale", None) or optimizer.dynamic_scale)


@pytest.mark.parametrize("where", ["around", "inside", "around, added up", "inside, added up"])
@pytest.mark.parametrize("kind", ["SGD", "legacy SGD"])
def test_all_ranks_skip_the_step_of_one(tfkeras, kind, where):
    """A LossScaleOptimizer is around the distributed optimizer, as Keras puts it, or inside of it. No rank takes a step
    for which the gradients of another rank are not finite."""
    hvd, keras = tfkeras
    x = models.X.copy()
    x[models.BATCH] = np.inf  # a row of rank 0's
    passes = 2 if "added up" in where else 1

    def scaled(distribute):
        optimizer = models.make_optimizer(keras, kind)
        if "around" in where:
            return loss_scaling(keras, distribute(optimizer))
        return distribute(loss_scaling(keras, optimizer))

    model = dense(keras)
    optimizer = scaled(lambda o: hvd.DistributedOptimizer(o, backward_passes_per_step=passes))
    model.compile(optimizer, loss(keras))
    if passes == 1:
        want = dense(keras)
        plain = scaled(lambda o: o)
        alone(keras, plain, want, x=x)
        fit(model, hvd, x=x)
        assert_same_weights(model.get_weights(), want.get_weights())
        assert scale_of(optimizer) == scale_of(plain) == 2.0**13
    elif where.startswith("around") and models.has_legacy(keras):
        with pytest.raises(ValueError, match="backward_passes_per_step > 1 does not work inside"):
            fit(model, hvd, x=x)
        return
    else:
        fit(model, hvd, x=x)
        assert scale_of(optimizer) < 2.0**15
    assert np.isfinite(model.get_weights()[0]).all()
    scales, weights = zip(*allgather_object((scale_of(optimizer), model.get_weights()[0].tolist())))
    assert len(set(scales)) == 1 and all(w == weights[0] for w in weights)


def test_mixed_precision(tfkeras):
    """Keras adds the LossScaleOptimizer by itself. It does not compile the model by XLA then either."""
    hvd, keras = tfkeras
    before = keras.mixed_precision.global_policy() if models.has_legacy(keras) else keras.config.dtype_policy()
    choose = keras.mixed_precision.set_global_policy if models.has_legacy(keras) else keras.config.set_dtype_policy
    choose("mixed_float16")
    try:
        model = dense(keras)
        model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, "SGD")), loss(keras))
        losses = fit(model, hvd, epochs=5).history["loss"]
    finally:
        choose(before)
    assert "LossScaleOptimizer" in type(model.optimizer).__name__
    assert losses[-1] < losses[0]
    assert all(w == model.get_weights()[0].tolist() for w in allgather_object(model.get_weights()[0].tolist()))


# ---- names of Horovod's optimizers for Keras 2


@pytest.fixture(params=["SGD", "legacy SGD"])
def of_keras_2(request, tfkeras):
    hvd, keras = tfkeras
    if hasattr(keras, "ops"):
        pytest.skip("Keras 3 has no such functions")
    kind = keras.optimizers.SGD if request.param == "SGD" else keras.optimizers.legacy.SGD
    return hvd, lambda **options: hvd.DistributedOptimizer(kind(0.1), **options)


@pytest.mark.parametrize("op", ["Average", "Sum"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_compute_gradients_reduces_once(of_keras_2, op, compiled):
    """Gradients that are summed already are not summed again when they are applied, clipped or not."""
    hvd, make = of_keras_2
    optimizer = make(op=getattr(hvd, op))
    v, other = tf.Variable([1.0]), tf.Variable([1.0])
    factor = hvd.rank() + 1.0
    total = sum(range(1, hvd.size() + 1)) / (hvd.size() if op == "Average" else 1)

    def by_function(clip):
        pairs = optimizer._compute_gradients(lambda: factor * v * v, [v])
        optimizer.apply_gradients([(tf.clip_by_value(g, -1e9, 1e9), w) for g, w in pairs] if clip else pairs)
        return pairs[0][0]

    def by_tape():
        with tf.GradientTape() as tape:
            loss = factor * v * v
        pairs = optimizer._compute_gradients(loss, [v, other], tape=tape)
        assert pairs[1][0] is None
        return pairs[0][0]

    def gradients_elsewhere():
        with tf.GradientTape() as tape:
            loss = factor * v * v
        optimizer.apply_gradients([(tape.gradient(loss, v), v)])

    steps = [lambda: by_function(False), lambda: by_function(True), gradients_elsewhere]
    if compiled:
        steps = [tf.function(step, autograph=False) for step in steps]
    for step in steps:
        v.assign([1.0])
        reduced = step()
        np.testing.assert_allclose(v, [1 - 0.1 * 2 * total], rtol=1e-5)
        if reduced is not None:
            np.testing.assert_allclose(reduced, [2 * total], rtol=1e-6)
    v.assign([1.0])
    np.testing.assert_allclose(
        (tf.function(by_tape, autograph=False) if compiled else by_tape)(), [2 * total], rtol=1e-6
    )


def test_minimize_reduces_once(of_keras_2):
    hvd, make = of_keras_2
    optimizer = make(op=hvd.Sum)
    v = tf.Variable([1.0])
    optimizer.minimize(lambda: (hvd.rank() + 1.0) * v, [v])
    np.testing.assert_allclose(v, [1 - 0.1 * sum(range(1, hvd.size() + 1))], rtol=1e-5)


def test_get_gradients_in_a_graph(of_keras_2):
    hvd, make = of_keras_2
    n = hvd.size()
    optimizer = make(op=hvd.Sum)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v = tf.Variable([1.0])
        (gradient,) = optimizer.get_gradients((hvd.rank() + 1.0) * tf.reduce_sum(v), [v])
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(gradient) == [sum(range(1, n + 1))]


def test_aggregation_by_its_name(of_keras_2):
    _, make = of_keras_2
    assert make()._agg_helper is None
    optimizer = make(backward_passes_per_step=2)
    v = tf.Variable([1.0])
    for step in range(4):
        optimizer.apply_gradients(optimizer._compute_gradients(lambda: v * 1.0, [v]))
        assert int(optimizer._agg_helper.counter) == (step + 1) % 2
    assert optimizer._agg_helper.backward_passes_per_step == 2
    np.testing.assert_allclose(v, [1 - 2 * 0.1 * 2], rtol=1e-5)
    assert int(optimizer.iterations) == 4
