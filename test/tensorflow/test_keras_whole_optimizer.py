"""A distributed optimizer does all that the given one does, also what its configuration does not tell."""

import copy
import pickle
import warnings

import keras_models as models
import keras_variants as variants
import numpy as np
import pytest
import tensorflow as tf

from horovod._keras import _copies
from horovod._keras.optimizer import is_distributed


@pytest.fixture
def front(job):
    return models.front_end("horovod.tensorflow.keras")


def generation_of(keras, wanted):
    """ "3" where ``wanted`` is "new" and Keras is Keras 3."""
    if models.has_legacy(keras):
        return {"new": "2", "legacy": "legacy"}[wanted]
    if wanted == "legacy":
        pytest.skip("Keras 3 has no legacy optimizers")
    return "3"


@pytest.mark.parametrize("where", ["alone", "around", "inside"])
@pytest.mark.parametrize("wanted", ["new", "legacy"])
@pytest.mark.parametrize("name", variants.NAMES)
def test_nothing_is_lost(front, name, wanted, where):
    hvd, keras = front
    generation = generation_of(keras, wanted)
    if name == "excluded" and generation == "legacy":
        pytest.skip("legacy optimizers have no weight decay")
    variants.check(keras, hvd, generation, name, where, tf.constant)


@pytest.mark.parametrize("front_end", ["horovod.keras", "horovod.tensorflow"])
def test_nothing_is_lost_in_other_front_ends(front, front_end, job):
    hvd, keras = front
    general = job if front_end == "horovod.tensorflow" else models.front_end(front_end)[0]
    if front_end == "horovod.keras":
        keras = models.front_end(front_end)[1]
    variants.check(
        keras, hvd, generation_of(keras, "new"), "attribute", "alone", tf.constant, general.DistributedOptimizer
    )


@pytest.fixture(params=["new", "legacy"])
def sgd(request, front):
    """The front end, the case, and a distributed SGD."""
    hvd, keras = front
    case = variants.new_case(keras, generation_of(keras, request.param), tf.constant)
    return hvd, case, hvd.DistributedOptimizer(case.optimizers.SGD(0.1))


def unpickled(optimizer):
    return pickle.loads(pickle.dumps(optimizer))


def from_config(optimizer):
    return type(optimizer).from_config(optimizer.get_config())


def from_class(optimizer):
    return type(optimizer)(0.1)


def known_by_name(optimizer):
    """Deserialized by Keras, with the class given by its name."""
    keras = models.front_end("horovod.tensorflow.keras")[1]
    config = {"class_name": "Mine", "config": optimizer.get_config()}
    if hasattr(keras, "ops"):
        config.update(module=None, registered_name="Mine")
    with keras.utils.custom_object_scope({"Mine": type(optimizer)}):
        return keras.optimizers.deserialize(config)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, unpickled, from_config, from_class, known_by_name])
def test_copies_stay_distributed(sgd, make):
    hvd, case, optimizer = sgd
    if make in (copy.copy, copy.deepcopy, unpickled):
        try:
            make(case.optimizers.SGD(0.1))
        except Exception as error:
            with pytest.raises(type(error)):
                make(optimizer)
            pytest.skip(f"this Keras cannot copy its own optimizer so: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        copied = make(optimizer)
    assert is_distributed(copied) and copied is not optimizer
    assert type(copied).__name__ == type(optimizer).__name__
    variants.subtracts_average(hvd, case, copied)
    variants.subtracts_average(hvd, case, optimizer)


def test_the_given_optimizer_stays_alone(sgd):
    hvd, case, _ = sgd
    given = case.optimizers.SGD(0.1)
    hvd.DistributedOptimizer(given)
    before = case.layer.get_weights()
    mine = [tf.fill(w.shape, hvd.rank() + 1.0) for w in before]
    case.apply(given, mine)
    for old, new, gradient in zip(before, case.layer.get_weights(), mine):
        np.testing.assert_allclose(new, old - 0.1 * gradient.numpy(), rtol=1e-5)


def test_pickles_belong_to_the_job_that_reads_them(front):
    """Of the optimizer, only what is Horovod's: Keras 2 cannot pickle all of its own."""
    hvd, keras = front

    def read(**options):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)
        return pickle.loads(pickle.dumps(optimizer._horovod_gradients))

    gradients = read(name="mine", op=hvd.Sum, groups=2)
    options = gradients._options
    assert options.process_set is hvd.global_process_set
    assert (gradients._name, options.op, options.groups) == ("mine", hvd.Sum, 2)
    for own in ({"process_set": hvd.ProcessSet([0])}, {"groups": [[tf.Variable(1.0)]]}):
        with pytest.raises(pickle.PicklingError, match="process set"):
            read(**own)


def test_copies_know_local_variables(sgd):
    hvd, case, optimizer = sgd
    optimizer.register_local_var(case.variables[0])
    with pytest.raises(pickle.PicklingError, match="local variables"):
        pickle.dumps(optimizer)
    for copied in (copy.copy(optimizer), from_config(optimizer)):
        before = case.layer.get_weights()
        case.apply(copied, [tf.fill(w.shape, hvd.rank() + 1.0) for w in before])
        steps = [(old - new) / 0.1 for old, new in zip(before, case.layer.get_weights())]
        wanted = [(hvd.rank() + 1) / hvd.size(), (hvd.size() + 1) / 2]
        for step, want in zip(steps, wanted):
            np.testing.assert_allclose(step, np.full(step.shape, want), rtol=1e-4, atol=1e-5)


def test_what_keras_copies_alone_is_warned_of_once(sgd, tmp_path):
    hvd, case, optimizer = sgd
    keras = case.keras
    model = models.dense(keras)
    model.compile(optimizer, "mse")
    model.build((None, 4))
    _copies._warn_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        optimizer.get_config()
        model.save(str(tmp_path / "model.keras"))  # loaded without Horovod, or by hvd.load_model
    with pytest.warns(UserWarning, match="trains on this rank alone"):
        assert not is_distributed(keras.optimizers.deserialize(keras.optimizers.serialize(optimizer)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        keras.optimizers.serialize(optimizer)  # once
    _copies._warn_once.cache_clear()
    with pytest.warns(UserWarning, match="trains on this rank alone"):
        copy.deepcopy(model)
    if case.generation == "3":
        _copies._warn_once.cache_clear()
        with pytest.warns(UserWarning, match="trains on this rank alone"):
            keras.models.clone_model(model)


def test_methods_of_the_instance_run_distributed(sgd):
    """A method that applies gradients by itself, bound to the given optimizer."""
    hvd, case, _ = sgd
    given = case.optimizers.SGD(0.1)
    type_of = type(given)
    given.step = (lambda self, gradients: case.apply(self, gradients)).__get__(given, type_of)
    optimizer = hvd.DistributedOptimizer(given)
    before = case.layer.get_weights()
    optimizer.step([tf.fill(w.shape, hvd.rank() + 1.0) for w in before])
    for old, new in zip(before, case.layer.get_weights()):
        np.testing.assert_allclose(old - new, np.full(old.shape, 0.1 * (hvd.size() + 1) / 2), rtol=1e-4)


def test_what_cannot_be_distributed_is_refused(sgd):
    hvd, case, optimizer = sgd
    given = case.optimizers.SGD(0.1)
    given.apply_gradients = lambda pairs: None
    with pytest.raises(ValueError, match="overrides apply_gradients"):
        hvd.DistributedOptimizer(given)
    with pytest.raises(ValueError, match="is a distributed one"):
        hvd.DistributedOptimizer(variants.scaling(case, optimizer))
    slotted = type("Slotted", (case.optimizers.SGD,), {"__slots__": ("other",)})
    with pytest.raises(ValueError, match="__slots__"):
        hvd.DistributedOptimizer(slotted(0.1))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("how", [{}, {"experimental_aggregate_gradients": False}, {"skip_gradients_aggregation": True}])
def test_sums_are_applied_at_the_last_pass_only(sgd, how, compiled):
    hvd, case, _ = sgd
    if case.generation == "3":
        pytest.skip("Keras 3 has no _compute_gradients")
    if case.generation == "legacy" and "skip_gradients_aggregation" in how:
        pytest.skip("not an argument of legacy optimizers")
    optimizer = hvd.DistributedOptimizer(case.optimizers.SGD(1.0), backward_passes_per_step=4)
    x = tf.Variable(0.0)

    def step():
        pairs = optimizer._compute_gradients(lambda: x * (hvd.rank() + 1.0), var_list=[x])
        optimizer.apply_gradients(pairs, **how)

    step = tf.function(step, autograph=False) if compiled else step
    found = []
    for _ in range(9):
        step()
        found.append(float(x))
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(found, np.array([0, 0, 0, -4, -4, -4, -4, -8, -8]) * mean)
    assert int(optimizer.iterations) == 9
