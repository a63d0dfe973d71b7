"""Optimizers of Keras that are more than their configuration tells, and a comparison of each with its distributed form.

On all ranks, the distributed optimizer applies other gradients; an ordinary one applies their average.
"""

import types

import keras_models as models
import numpy as np

STEPS = 3
SHAPES = [(4, 3), (3,)]


class Case:
    """The module of Keras and the generation of its optimizers, "3", "2" or "legacy", and the variables to train."""

    def __init__(self, keras, generation, variables):
        self.keras, self.generation, self.variables = keras, generation, variables
        optimizers = models.optimizers(keras)
        self.optimizers = optimizers.legacy if generation == "legacy" else optimizers
        self.update = "_resource_apply_dense" if generation == "legacy" else "update_step"

    def derived(self, base="SGD", **methods):
        """A class derived from one of Keras'. Its methods are functions of the class that they belong to."""
        made = type("Derived", (getattr(self.optimizers, base),), {})
        for name, function in methods.items():
            setattr(made, name, function(made))
        return made

    def scaled_update(self, of):
        """An update with ``self.factor`` times the gradient; ``of`` is the function to override."""
        return lambda self, gradient, *args: of(self, gradient * self.factor, *args)

    def apply(self, optimizer, gradients):
        optimizer.apply_gradients(list(zip(gradients, self.variables)))


def plain(case):
    return case.optimizers.SGD(0.1, momentum=0.9)


def excluded(case):
    """The bias does not decay."""
    optimizer = case.optimizers.SGD(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=[case.variables[1]])
    return optimizer


def attribute(case):
    kind = case.derived(**{case.update: lambda c: case.scaled_update(getattr(super(c, c), case.update))})
    optimizer = kind(0.1)
    optimizer.factor = 3.0
    return optimizer


def argument(case):
    """The configuration lacks an argument of the constructor, which has no default."""

    def init(c):
        def __init__(self, factor, *args):
            super(c, self).__init__(*args)
            self.factor = factor

        return __init__

    kind = case.derived(__init__=init, **{case.update: lambda c: case.scaled_update(getattr(super(c, c), case.update))})
    return kind(3.0, 0.1)


def method(case):
    """A method of the instance."""
    optimizer = case.optimizers.SGD(0.1, momentum=0.9)
    optimizer.factor = 3.0
    own = types.MethodType(case.scaled_update(getattr(type(optimizer), case.update)), optimizer)
    setattr(optimizer, case.update, own)
    return optimizer


def closure(case):
    """A function that calls the method of the given object, not of the distributed one."""
    optimizer = case.optimizers.SGD(0.1, momentum=0.9)
    of = getattr(optimizer, case.update)
    setattr(optimizer, case.update, lambda gradient, *args: of(gradient * 3.0, *args))
    return optimizer


def squared(case):
    """A class that squares gradients: this must come after they are averaged."""

    def apply_gradients(c):
        def override(self, grads_and_vars, *args, **kwargs):
            return super(c, self).apply_gradients([(g * g, v) for g, v in grads_and_vars], *args, **kwargs)

        return override

    return case.derived(apply_gradients=apply_gradients)(0.1)


def used(case):
    """An optimizer that has made a step: it has variables, and velocities."""
    optimizer = plain(case)
    case.apply(optimizer, [case.tensor(g) for g in _gradients(0, 7)])
    return optimizer


def schedule(case):
    """A learning rate that depends on the step: a function, or an object of a class that is not registered."""
    if case.generation != "3":
        return case.optimizers.SGD(models.Halving(case.keras))
    ops = case.keras.ops
    optimizer = case.optimizers.SGD(lambda: 0.1 / (1.0 + ops.cast(optimizer.iterations, "float32")))
    return optimizer


VARIANTS = [plain, excluded, attribute, argument, method, closure, squared, used, schedule]
NAMES = [variant.__name__ for variant in VARIANTS]


def _gradients(rank, step):
    random = np.random.RandomState(100 * step + rank)
    return [random.randn(*shape).astype(np.float32) for shape in SHAPES]


def mean_gradients(size, step):
    """The average of all ranks' gradients."""
    return [np.mean(of, axis=0) for of in zip(*(_gradients(rank, step) for rank in range(size)))]


def new_case(keras, generation, tensor):
    layer = keras.layers.Dense(3)
    layer.build((None, 4))
    layer.set_weights([g / 10 for g in _gradients(0, 99)])
    case = Case(keras, generation, list(layer.trainable_weights))
    case.tensor, case.layer = tensor, layer
    return case


def scaling(case, optimizer):
    """A LossScaleOptimizer around ``optimizer``, whose scale is 1."""
    module = case.keras.mixed_precision if models.has_legacy(case.keras) else case.optimizers
    if models.has_legacy(case.keras):
        return module.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=1)
    return module.LossScaleOptimizer(optimizer, initial_scale=1.0)


def trained(case, optimizer, gradients_of, apply=None):
    """The weights after some steps."""
    for step in range(STEPS):
        (apply or case.apply)(optimizer, [case.tensor(g) for g in gradients_of(step)])
    return case.layer.get_weights()


def check(keras, hvd, generation, name, where, tensor, distribute=None, apply=None):
    """The distributed optimizer changes the variables as the given one does with the average of the gradients.

    ``where``: the optimizer is "alone", or a LossScaleOptimizer is "around" the distributed one or "inside".
    """
    variant = VARIANTS[NAMES.index(name)]
    distribute = distribute or hvd.DistributedOptimizer
    alone, shared = new_case(keras, generation, tensor), new_case(keras, generation, tensor)
    want = variant(alone) if where == "alone" else scaling(alone, variant(alone))
    given = variant(shared)
    if where == "around":
        got = scaling(shared, distribute(given))
    else:
        got = distribute(given if where == "alone" else scaling(shared, given))

    def bound(case):
        return None if apply is None else lambda optimizer, gradients: apply(case, optimizer, gradients)

    of_one = trained(alone, want, lambda step: mean_gradients(hvd.size(), step), bound(alone))
    of_all = trained(shared, got, lambda step: _gradients(hvd.rank(), step), bound(shared))
    for a, b in zip(of_all, of_one):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def subtracts_average(hvd, case, optimizer):
    """Assert that ``optimizer``, an SGD with a rate of 0.1, applies the average over the ranks."""
    before = case.layer.get_weights()
    case.apply(optimizer, [case.tensor(g) for g in _gradients(hvd.rank(), 5)])
    for old, new, mean in zip(before, case.layer.get_weights(), mean_gradients(hvd.size(), 5)):
        np.testing.assert_allclose(new, old - 0.1 * mean, rtol=1e-4, atol=1e-5)
