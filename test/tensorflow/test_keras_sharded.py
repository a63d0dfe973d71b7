"""Sharded optimizers of Keras: each rank has a share of the state, and the weights are those of the unsharded run."""

import copy
import pickle
from pathlib import Path

import keras_models as models
import numpy as np
import pytest
import tensorflow as tf
from keras_models import FRONT_ENDS, dense, fit, loss

from horovod._keras import _frameworks
from horovod.common import _lib

NAMES = "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "Nadam", "Ftrl", "Lion"


@pytest.fixture
def tfkeras(job, monkeypatch):
    return models.front_end(FRONT_ENDS[0])


def gradients(model, hvd, step, seed=0):
    random = np.random.RandomState(100 * step + hvd.rank() + seed)
    return [tf.constant(random.randn(*v.shape), v.dtype) for v in model.trainable_variables]


def stepped(hvd, keras, optimizer, sharded, steps=3, model=None, **kwargs):
    """The model after eager steps with gradients that differ between ranks."""
    model = model or dense(keras)
    distributed = hvd.DistributedOptimizer(optimizer, sharded=sharded, **kwargs)
    for step in range(steps):
        distributed.apply_gradients(zip(gradients(model, hvd, step), model.trainable_variables))
    return model, distributed


def fitted(hvd, keras, optimizer, sharded, model=None, callbacks=(), **kwargs):
    model = model or dense(keras)
    model.compile(hvd.DistributedOptimizer(optimizer, sharded=sharded, **kwargs), loss(keras))
    fit(model, hvd, callbacks=callbacks)
    return model


def in_function(optimizer, trained):
    """A tf.function of gradients that makes a step."""

    def step(found):
        optimizer.apply_gradients(zip(found, trained))

    return tf.function(step, autograph=False)


def more(model, hvd):
    """A step of the model's optimizer."""
    model.optimizer.apply_gradients(zip(gradients(model, hvd, 7), model.trainable_variables))


def assert_equal(got, want):
    for g, w in zip(got.get_weights(), want.get_weights()):
        np.testing.assert_array_equal(g, w)


def variables(optimizer):
    found = optimizer.variables
    return list(found() if callable(found) else found)


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_bits_of_the_unsharded_run(tfkeras, name):
    """Inside a host a reducescatter has the bits of an allreduce.

    TensorFlow's pow and rsqrt round the last elements of a tensor differently. Ftrl has pow in eager mode alone, and
    RMSprop has rsqrt in graphs alone.
    """
    hvd, keras = tfkeras
    results = []
    for sharded in (False, True):
        optimizer = hvd.DistributedOptimizer(getattr(keras.optimizers, name)(0.01), sharded=sharded)
        trained = [tf.Variable(tf.linspace(-1.0, 1.0, n)) for n in (1, 37)]
        step = optimizer.apply_gradients
        if name == "Ftrl":
            step = in_function(optimizer, trained)
        for number in range(3):
            random = np.random.RandomState(100 * number + hvd.rank())
            found = [tf.constant(random.randn(*v.shape), v.dtype) for v in trained]
            step(found if name == "Ftrl" else zip(found, trained))
        results.append([v.numpy() for v in trained])
    for got, want in zip(*results):
        np.testing.assert_array_equal(got, want)


@pytest.mark.smoke
def test_a_rank_has_a_share_of_the_state(tfkeras):
    hvd, keras = tfkeras
    got, optimizer = stepped(hvd, keras, keras.optimizers.Adam(0.01), True)
    elements = sum(v.shape.num_elements() for v in map(tf.convert_to_tensor, got.trainable_variables))
    mine = sum(_lib_share(v, hvd) for v in got.trainable_variables)
    held = [v for v in variables(optimizer) if len(v.shape)]
    assert sum(int(np.prod(v.shape)) for v in held) == 2 * mine
    assert mine <= elements / hvd.size() + len(got.trainable_variables)


def _lib_share(variable, hvd):
    return _lib.load().gorovod_share(int(np.prod(variable.shape)), hvd.rank(), hvd.size())


def test_schedules_callbacks_decay_and_predivision(tfkeras):
    hvd, keras = tfkeras
    change = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.1 / (1 + epoch))
    runs = []
    for sharded in (False, True):
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.01)
        optimizer.exclude_from_weight_decay(var_names=["bias"])
        model = fitted(hvd, keras, optimizer, sharded, callbacks=[change], gradient_predivide_factor=2.0)
        runs.append((model, stepped(hvd, keras, models.make_optimizer(keras, "schedule"), sharded)[0]))
    for want, got in zip(*runs):
        assert_equal(got, want)


@pytest.mark.parametrize("clip", [{"clipvalue": 0.05}, {"clipnorm": 0.1}, {"global_clipnorm": 0.1}])
def test_clipping_is_of_whole_gradients(tfkeras, clip):
    hvd, keras = tfkeras
    want, _ = stepped(hvd, keras, keras.optimizers.SGD(0.1, **clip), False)
    got, _ = stepped(hvd, keras, keras.optimizers.SGD(0.1, **clip), True)
    for g, w in zip(got.get_weights(), want.get_weights()):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    free, _ = stepped(hvd, keras, keras.optimizers.SGD(0.1), True)
    assert not np.allclose(free.get_weights()[0], got.get_weights()[0], atol=1e-4)


def test_averages_constraints_and_accumulation(tfkeras):
    hvd, keras = tfkeras

    def constrained():
        layers = [
            keras.layers.Dense(5, kernel_constraint=keras.constraints.UnitNorm(), name="first"),
            keras.layers.Dense(3, name="second"),
        ]
        model = keras.Sequential([keras.layers.Input((4,)), *layers])
        models.set_weights(model)
        return model

    cases = [{"use_ema": True, "ema_momentum": 0.5}, {"use_ema": True, "ema_overwrite_frequency": 3}]
    if not models.has_legacy(keras):
        cases += [{"gradient_accumulation_steps": 2}, {"loss_scale_factor": 4.0}]
    for case in cases:
        results = []
        for sharded in (False, True):
            model = constrained()
            _, optimizer = stepped(hvd, keras, keras.optimizers.Adam(0.01, **case), sharded, 4, model)
            results.append(model.get_weights())
            optimizer.finalize_variable_values(model.trainable_variables)
            results[-1] += model.get_weights()
        for got, want in zip(*results):
            np.testing.assert_array_equal(got, want)


def test_sparse_and_missing_gradients(tfkeras):
    hvd, keras = tfkeras
    weights = []
    for sharded in (False, True):
        table, scalar, idle = tf.Variable(tf.ones([5, 3])), tf.Variable(2.0), tf.Variable([1.0])
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), sparse_as_dense=True, sharded=sharded)
        for step in range(3):
            values, places = tf.ones([2, 3]) * (hvd.rank() + step), tf.constant([hvd.rank() % 5, 4])
            rows = tf.IndexedSlices(values, places, tf.constant([5, 3]))
            optimizer.apply_gradients([(rows, table), (tf.constant(1.0 + hvd.rank()), scalar), (None, idle)])
        weights.append([table.numpy(), scalar.numpy(), idle.numpy()])
    for got, want in zip(*weights):
        np.testing.assert_array_equal(got, want)


def test_weights_set_by_the_program_count(tfkeras):
    hvd, keras = tfkeras
    runs = []
    for sharded in (False, True):
        model, optimizer = stepped(hvd, keras, keras.optimizers.SGD(0.1, momentum=0.9), sharded, 1)
        models.set_weights(model, seed=5)
        in_function(optimizer, model.trainable_variables)(gradients(model, hvd, 1))
        runs.append(model)
    assert_equal(runs[1], runs[0])


def test_16_bit_variables_have_float32_masters(tfkeras):
    """Steps far below the resolution of bfloat16 add up, as in a float32 run whose weights are rounded at the end."""
    hvd, keras = tfkeras
    rate, start = 2.0**-12, np.linspace(0.5, 1.5, 7)
    narrow = tf.Variable(start, dtype=tf.bfloat16)
    wide = tf.Variable(tf.cast(narrow, tf.float32))
    for variable in (narrow, wide):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(rate), sharded=True)
        for _ in range(32):
            optimizer.apply_gradients([(tf.ones([7], variable.dtype), variable)])
    np.testing.assert_array_equal(narrow.numpy(), tf.cast(wide, tf.bfloat16).numpy())
    assert (wide.numpy() < start).all()


def test_process_set(tfkeras, evens):
    hvd, keras = tfkeras
    want, _ = stepped(hvd, keras, keras.optimizers.Adam(0.1), False, process_set=evens)
    got, _ = stepped(hvd, keras, keras.optimizers.Adam(0.1), True, process_set=evens)
    assert_equal(got, want)


def test_state_is_saved_whole_and_cut_when_loaded(tfkeras, tmp_path):
    hvd, keras = tfkeras
    path = str(tmp_path / "model.keras")
    model = dense(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sharded=True), loss(keras))
    more(model, hvd)
    with pytest.raises(ValueError, match="inside `with optimizer.gathered"):
        model.save(path)
    with model.optimizer.gathered():
        model.save(path)  # each rank in a directory of its own
    more(model, hvd)
    plain = keras.models.load_model(path)
    assert type(plain.optimizer) is keras.optimizers.Adam
    for load, sharded in [(keras.models.load_model, False), (keras.models.load_model, True), (hvd.load_model, True)]:
        again = load(path)
        again.compile(hvd.DistributedOptimizer(again.optimizer, sharded=sharded), loss(keras))
        more(again, hvd)
        assert_equal(again, model)


def test_start_from_rank_0(tfkeras):
    hvd, keras = tfkeras
    model = dense(keras)
    models.set_weights(model, hvd.rank())
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    got = fitted(hvd, keras, keras.optimizers.Adam(0.01), True, model, [start])
    assert_equal(got, fitted(hvd, keras, keras.optimizers.Adam(0.01), False))
    late = dense(keras, built=False)
    with pytest.raises(ValueError, match="the model must be built before training begins"):
        fitted(hvd, keras, keras.optimizers.Adam(0.01), True, late, [start.__class__(0)])
    with pytest.raises(ValueError, match="is this rank's share of a sharded optimizer"):
        import horovod.tensorflow as general

        general.broadcast_variables(variables(got.optimizer), 0)


def test_loss_scaling(tfkeras):
    """A gradient that overflows on one rank skips the step on all."""
    hvd, keras = tfkeras
    if models.has_legacy(keras):
        scaled = keras.mixed_precision.LossScaleOptimizer(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sharded=True)
        )
        with pytest.raises(NotImplementedError, match="inside a LossScaleOptimizer of Keras 2"):
            scaled.apply_gradients([(tf.ones([3]), tf.Variable(tf.ones([3])))])
        return
    results = []
    for sharded in (False, True):
        variable = tf.Variable(tf.ones([3]))
        inner = hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), sharded=sharded)
        optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
        for bad in (False, True, False):
            values = [1.0, 2.0, np.inf if bad and hvd.rank() == 0 else 3.0]
            optimizer.apply_gradients([(tf.constant(values), variable)])
        results.append((variable.numpy(), int(optimizer.iterations), float(optimizer.dynamic_scale)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:] == (2, 2.0)


def test_a_scaled_optimizer_is_saved_whole(tfkeras, tmp_path):
    hvd, keras = tfkeras
    if models.has_legacy(keras):
        pytest.skip("Keras 2's LossScaleOptimizer is refused")
    path = str(tmp_path / "model.keras")
    model = dense(keras)
    inner = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01), sharded=True)
    model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0), loss(keras))
    more(model, hvd)
    with pytest.raises(ValueError, match="inside `with optimizer.gathered"):
        model.save(path)
    with inner.gathered():
        model.save(path)
    more(model, hvd)
    again = keras.models.load_model(path)
    again.optimizer.inner_optimizer = hvd.DistributedOptimizer(again.optimizer.inner_optimizer, sharded=True)
    more(again, hvd)
    assert_equal(again, model)


def test_the_guide_s_example(tfkeras, tmp_path, monkeypatch):
    guide = (Path(__file__).resolve().parents[2] / "docs" / "keras.md").read_text(encoding="utf-8")
    example = guide.split("## Sharded optimizers")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/keras.md", "exec"), {})
    assert (tmp_path / "model.keras").exists() == (tfkeras[0].rank() == 0)


def test_what_would_do_nothing_is_refused(tfkeras, monkeypatch):
    hvd, keras = tfkeras
    for backend in ("torch", "jax"):
        monkeypatch.setattr(_frameworks, "backend", lambda keras, backend=backend: backend)
        with pytest.raises(NotImplementedError, match=f"sharded=True .* here it runs on {backend}"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sharded=True)
    monkeypatch.undo()
    if not hasattr(keras.callbacks, "SwapEMAWeights"):
        return
    swap = keras.callbacks.SwapEMAWeights()
    model = dense(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, use_ema=True), sharded=True), loss(keras))
    more(model, hvd)
    swap.set_model(model)
    with pytest.raises(ValueError, match="does not work with SwapEMAWeights"):
        swap.on_test_begin()


def test_what_cannot_be_sharded_is_refused(tfkeras, tmp_path):
    hvd, keras = tfkeras
    distribute, sgd = hvd.DistributedOptimizer, keras.optimizers.SGD

    class Mine(sgd):
        pass

    class Normed(sgd):
        def update_step(self, gradient, *args, **kwargs):
            super().update_step(gradient / tf.norm(gradient), *args, **kwargs)

    with pytest.raises(ValueError, match="Mine is not known to be one"):
        distribute(Mine(0.1), sharded=True)
    with pytest.raises(ValueError, match="Normed is not element-wise"):
        distribute(Normed(0.1), sharded=True, elementwise=True)
    want, _ = stepped(hvd, keras, Mine(0.1), False)
    assert_equal(stepped(hvd, keras, Mine(0.1), True, elementwise=True)[0], want)
    for name in ("Adafactor", "Lamb", "Muon"):
        if hasattr(keras.optimizers, name):
            with pytest.raises(ValueError, match=f"which {name} is not"):
                distribute(getattr(keras.optimizers, name)(0.1), sharded=True, elementwise=True)
    if models.has_legacy(keras):
        with pytest.raises(ValueError, match="no legacy optimizers"):
            distribute(keras.optimizers.legacy.SGD(0.1), sharded=True)
    for wrong, text in [
        ({"backward_passes_per_step": 2}, "gradient_accumulation_steps"),
        ({"num_groups": 2}, "groups or num_groups"),
        ({"compression": hvd.Compression.fp16}, "compression must be Compression.none"),
    ]:
        with pytest.raises(ValueError, match=text):
            distribute(sgd(0.1), sharded=True, **wrong)
    with pytest.raises(ValueError, match="only with sharded=True"):
        distribute(sgd(0.1), elementwise=True)
    made = distribute(sgd(0.1), sharded=True)
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            take(made)
    with pytest.raises(ValueError, match="sharded one already"):
        distribute(made, sharded=True)
    with pytest.raises(ValueError, match="no local variables"):
        made.register_local_var(tf.Variable(1.0))
    model = dense(keras)
    model.compile(made, loss(keras))
    with pytest.raises(NotImplementedError, match="elastic state does not work with a sharded optimizer"):
        hvd.elastic.KerasState(model)
    with pytest.raises(ValueError, match="cannot be in a tf.train.Checkpoint"):
        tf.train.Checkpoint(optimizer=made).save(str(tmp_path / "unused"))
    with pytest.raises(ValueError, match="cannot be saved in HDF5"):
        model.save(str(tmp_path / "unused.h5"))


def test_ranks_that_disagree_are_named(tfkeras):
    hvd, keras = tfkeras
    if hvd.size() == 1:
        pytest.skip("one rank agrees with itself")
    trained = [tf.Variable(tf.ones([3]))]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sharded=hvd.rank() == 0)
    with pytest.raises(Exception, match="ismatched") as failure:
        optimizer.apply_gradients([(tf.ones([3]), trained[0])])
    if hvd.rank() == 0:
        assert "disagree about sharded=True" in str(failure.value)
    with pytest.raises(tf.errors.FailedPreconditionError, match="ismatched"):
        in_function(optimizer, trained)(trained)


def test_state_that_not_all_ranks_have_is_refused(tfkeras):
    hvd, keras = tfkeras
    if hvd.size() == 1:
        pytest.skip("one rank has all")
    for error in (ValueError, tf.errors.InvalidArgumentError):
        trained = [tf.Variable(tf.ones([3]))]
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.iterations.assign(3 + (hvd.rank() == 1))
        distributed = hvd.DistributedOptimizer(optimizer, sharded=True)
        with pytest.raises(error, match="made other numbers of steps"):
            if error is ValueError:
                distributed.apply_gradients([(tf.ones([3]), trained[0])])
            else:
                in_function(distributed, trained)(trained)


def test_whole_front_end(job):
    """``horovod.keras`` has it, too, with process sets in PartialDistributedOptimizer."""
    hvd, keras = models.front_end(FRONT_ENDS[1])
    got, _ = stepped(hvd, keras, keras.optimizers.SGD(0.1), True)
    assert_equal(got, stepped(hvd, keras, keras.optimizers.SGD(0.1), False)[0])
    with pytest.raises(ValueError, match="no local variables or layers"):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=keras.layers.Dense(1), sharded=True)
