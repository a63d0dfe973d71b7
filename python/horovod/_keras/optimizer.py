"""Distributed optimizers: optimizers of Keras whose gradients are reduced over the ranks before they are applied.

A distributed optimizer has the state of the optimizer that it is made from: both have the same ``__dict__``. So
nothing is lost that a configuration does not tell: attributes, methods of the instance, variables that are built
already. Its class is derived from the given one's, and has the same name, module and configuration. So a model that is
saved with it can be loaded without Horovod.

What belongs to Horovod is in slots, outside of that ``__dict__``: Keras neither sees nor saves it, and the given
optimizer remains an ordinary one.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

from horovod._keras import _frameworks
from horovod._keras._copies import warn_of_copies
from horovod.common import _arguments, _patches
from horovod.common._options import Options

if TYPE_CHECKING:
    _OfKeras = Any  # the class that the classes below are mixed into
else:
    _OfKeras = object


class Distributed(_OfKeras):
    """The methods of all distributed optimizers."""

    __slots__ = ("_horovod_computed", "_horovod_gradients", "_horovod_takes_reduced")

    _horovod_kind: Any  # the plain class
    _horovod_template: Any  # Gradients that each instance gets a copy of

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made: Any = object.__new__(cls)
        object.__setattr__(made, "_horovod_gradients", cls._horovod_template.copy())
        object.__setattr__(made, "_horovod_takes_reduced", False)
        object.__setattr__(made, "_horovod_computed", False)
        return made

    @classmethod
    def _sharing(cls, optimizer: Any) -> Any:
        """A distributed optimizer with the state of ``optimizer``."""
        made = cls.__new__(cls)
        made.__setstate__(optimizer)
        return made

    def __setstate__(self, optimizer: Any) -> None:
        state: dict[str, Any] = vars(optimizer)
        object.__setattr__(self, "__dict__", state)
        # A method that was bound to the given optimizer may call `self.apply`, which must reduce.
        for name, value in state.items():
            if isinstance(value, types.MethodType) and getattr(value.__self__, "__dict__", None) is state:
                state[name] = types.MethodType(value.__func__, self)

    def _plain(self) -> Any:
        """An ordinary optimizer with the same state."""
        plain = object.__new__(self._horovod_kind)
        object.__setattr__(plain, "__dict__", vars(self))
        return plain

    # Copies are those that Keras makes of the ordinary optimizer, made distributed ones.

    def __copy__(self) -> Any:
        return self._sharing(copy.copy(self._plain()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__setstate__(copy.deepcopy(self._plain(), memo))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _unpickled, (self._horovod_kind, self._horovod_gradients), self._plain()

    def get_config(self) -> Any:
        """As Keras' method. It does not tell that the optimizer is distributed."""
        warn_of_copies()
        return super().get_config()

    @classmethod
    def from_config(cls, config: Any, *args: Any, **kwargs: Any) -> Any:
        """A distributed optimizer with the same options."""
        return cls._sharing(cls._horovod_kind.from_config(config, *args, **kwargs))

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of ``var`` from being reduced."""
        self._horovod_gradients.register_local_var(var)

    def register_local_layers(self, layers: Sequence[Any]) -> None:
        """Keep the gradients of all weights of ``layers`` from being reduced. The layers may be built later."""
        self._horovod_gradients.register_local_layers(layers)

    @contextlib.contextmanager
    def _taking_reduced(self) -> Iterator[None]:
        """A context in which the gradients to apply have been reduced already."""
        object.__setattr__(self, "_horovod_takes_reduced", True)
        try:
            yield
        finally:
            object.__setattr__(self, "_horovod_takes_reduced", False)


class _OfKeras3(Distributed):
    """Reduces in the outermost of the methods that apply gradients, so each of them may be overridden in the class."""

    __slots__ = ()

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Sequence[Any]] = None) -> None:
        """As Keras' method, with the reduced gradients."""
        grads = list(grads)
        if not grads or self._horovod_takes_reduced:
            return super().apply(grads, trainable_variables)
        if trainable_variables is None:
            variables = self._trainable_variables
        else:
            variables = trainable_variables = list(trainable_variables)
        apply = super().apply
        self._reduce_and(grads, variables, lambda reduced: apply(reduced, trainable_variables))

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As Keras' method, with the reduced gradients."""
        pairs = list(grads_and_vars)
        if not pairs or self._horovod_takes_reduced:
            return super().apply_gradients(pairs, *args, **kwargs)
        variables = [v for _, v in pairs]
        apply = super().apply_gradients
        self._reduce_and(
            [g for g, _ in pairs], variables, lambda reduced: apply(list(zip(reduced, variables)), *args, **kwargs)
        )
        return self._iterations

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """As Keras' method, with the reduced gradients."""
        apply = super().stateless_apply
        # While gradients are being added up, `apply` below must count the step.
        if self._horovod_takes_reduced or not self.built or self._horovod_gradients.adds_up:
            return apply(optimizer_variables, grads, trainable_variables)

        def apply_reduced(reduced: list[Any]) -> Any:
            with self._taking_reduced():
                return apply(optimizer_variables, reduced, trainable_variables)

        return self._horovod_gradients.apply(self, list(grads), self._trainable_variables, apply_reduced)

    def _reduce_and(self, grads: list[Any], variables: list[Any], apply: Any) -> None:
        if not self.built:  # here, because below this may be inside a branch
            self.build(variables)

        def apply_reduced(reduced: list[Any]) -> None:
            with self._taking_reduced():
                apply(list(reduced))

        self._horovod_gradients.apply(self, grads, variables, apply_reduced)


class _OfKeras2(Distributed):
    """Horovod's class for Keras 2 reduces where gradients are computed. This one also reduces gradients from elsewhere.

    So the calls that follow do not reduce the gradients of :meth:`_compute_gradients` and :meth:`get_gradients` again.
    """

    __slots__ = ()

    def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> list[Any]:
        """The reduced gradients of ``loss``, a function or a tensor of ``tape``, and their variables."""
        of_legacy = getattr(super(), "_compute_gradients", None)
        if of_legacy is not None:
            pairs = of_legacy(loss, var_list, grad_loss, tape=tape)
        else:
            variables = list(var_list() if callable(var_list) else var_list)
            pairs = list(zip(self._horovod_gradients.of_loss(loss, variables, grad_loss, tape), variables))
        variables = [v for _, v in pairs]
        return list(zip(self._reduced_now([g for g, _ in pairs], variables), variables))

    def get_gradients(self, loss: Any, params: Any) -> list[Any]:
        """The reduced gradients of ``loss`` with respect to ``params``, in a graph of TensorFlow 1."""
        of = getattr(super(), "get_gradients", self._horovod_gradients.in_graph)  # legacy optimizers define it
        return self._reduced_now(of(loss, params), params)

    def _reduced_now(self, gradients: Any, variables: Any) -> list[Any]:
        reduced = self._horovod_gradients.reduce(list(gradients), list(variables))
        object.__setattr__(self, "_horovod_computed", True)
        return reduced

    def _were_reduced(self) -> bool:
        """Whether the gradients that arrive now were reduced where they were computed. Ask once."""
        computed = self._horovod_computed
        object.__setattr__(self, "_horovod_computed", False)
        return computed

    @property
    def _agg_helper(self) -> Any:
        """The object that adds gradients up over ``backward_passes_per_step``; None if each pass is reduced at once."""
        return self._horovod_gradients.helper

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As Keras' method, with the reduced gradients, unless the arguments say that they are reduced already."""
        pairs = list(grads_and_vars)
        were_reduced = self._were_reduced()
        reduced_elsewhere = kwargs.get("skip_gradients_aggregation") or not kwargs.get(
            "experimental_aggregate_gradients", True
        )
        # What _compute_gradients returns may be sums that are not to be applied yet, whatever the arguments say.
        if not pairs or self._horovod_takes_reduced or (reduced_elsewhere and not were_reduced):
            return super().apply_gradients(pairs, *args, **kwargs)
        variables = [v for _, v in pairs]
        apply = super().apply_gradients

        def apply_reduced(reduced: list[Any]) -> Any:
            with self._taking_reduced():
                return apply(list(zip(reduced, variables)), *args, **kwargs)

        take = self._horovod_gradients.apply_reduced if were_reduced else self._horovod_gradients.apply
        return take(self, [g for g, _ in pairs], variables, apply_reduced)

    # A LossScaleOptimizer calls this before it checks whether gradients are finite, so all ranks get the same answer.

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """Reduced gradients and their variables."""
        return self._aggregated(super().aggregate_gradients(grads_and_vars))

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """The same, under the name in legacy optimizers."""
        return self._aggregated(super()._aggregate_gradients(grads_and_vars))

    def _aggregated(self, grads_and_vars: Any) -> Any:
        if self._horovod_takes_reduced:
            return grads_and_vars
        pairs = list(grads_and_vars)
        if self._were_reduced() and self._agg_helper is None:
            return pairs
        variables = [v for _, v in pairs]
        return list(zip(self._horovod_gradients.reduced([g for g, _ in pairs], variables), variables))


def is_distributed(optimizer: Any) -> bool:
    """Whether ``optimizer``, or the optimizer inside a LossScaleOptimizer, reduces gradients already."""
    return isinstance(optimizer, Distributed) or _holds_distributed(optimizer)


def _holds_distributed(optimizer: Any) -> bool:
    return isinstance(getattr(optimizer, "inner_optimizer", None), Distributed)


def _is_of_keras_3(kind: type) -> bool:
    return hasattr(kind, "stateless_apply")


def distributed_class(kind: Any, gradients: Any, mixin: Optional[type[Distributed]] = None) -> Any:
    """The distributed form of ``kind``, a class of optimizers. Each instance gets a copy of ``gradients``.

    ``mixin`` has the methods of its own; without it, those that reduce whole gradients.
    """
    if mixin is None:
        mixin = _mixin(kind)
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    names.update({"_horovod_kind": kind, "_horovod_template": gradients})
    # Keras 2 reads these attributes to learn the exported name.
    names.update({k: v for k, v in vars(kind).items() if k.startswith("_keras_api_names")})
    made = type(kind.__name__, (mixin, kind), names)
    made.__qualname__ = kind.__qualname__
    _save_as(made, kind)
    if _is_of_keras_3(kind):
        import keras

        _frameworks.framework(keras).prepare(is_distributed)
        _reduce_before_unscaling(keras)
    return made


def _unpickled(kind: Any, gradients: Any) -> Any:
    made = distributed_class(kind, gradients)
    return made.__new__(made)


def _save_as(made: type, kind: type) -> None:
    """Make Keras 3, and Keras 2 for classes that it does not know, save objects of ``made`` as those of ``kind``."""
    for package in ("keras", "tf_keras"):
        try:
            source = __import__(f"{package}.src", fromlist=["src"])
            registration = __import__(f"{package}.src.saving.object_registration", fromlist=["saving"])
        except ImportError:
            continue
        exported = getattr(getattr(source, "api_export", None), "REGISTERED_OBJS_TO_NAMES", {})
        for known in (exported, getattr(registration, "_GLOBAL_CUSTOM_NAMES", {})):
            if kind in known:
                _patches.put("keras-saved-name", known, made, known[kind])
        names = getattr(registration, "GLOBAL_CUSTOM_NAMES", {})
        if kind in names:
            _patches.put("keras-saved-name", names, made, names[kind])


def _reduce_before_unscaling(keras: Any) -> None:
    """Make a LossScaleOptimizer of Keras 3 reduce gradients before it checks whether they are finite, not after.

    ``compile`` puts a LossScaleOptimizer around a distributed optimizer if the model computes in float16. Without this,
    a rank whose gradients are not finite would skip the reduction, and the others would wait for it.
    """
    kind = getattr(keras.optimizers, "LossScaleOptimizer", None)
    if kind is None or not _is_of_keras_3(kind) or getattr(kind, "_knows_horovod", False):
        return

    def apply_reduced(inner: Any, grads: Any, variables: Any, apply: Any) -> Any:
        def go_on(reduced: list[Any]) -> Any:
            with inner._taking_reduced():
                return apply(reduced)

        return inner._horovod_gradients.apply(inner, list(grads), variables, go_on)

    plain_apply, plain_stateless_apply = kind.apply, kind.stateless_apply

    @functools.wraps(plain_apply)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
        inner = self.inner_optimizer
        if not isinstance(inner, Distributed):
            return plain_apply(self, grads, trainable_variables)
        if not self.built:  # here, because below this may be inside a branch
            self.build(list(trainable_variables))
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if hasattr(inner, "_on_shares"):
            inner._on_shares(list(grads), variables, functools.partial(plain_apply, self))
            return
        apply_reduced(inner, grads, variables, lambda reduced: plain_apply(self, reduced, trainable_variables) and None)

    @functools.wraps(plain_stateless_apply)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        inner = self.inner_optimizer
        if not isinstance(inner, Distributed):
            return plain_stateless_apply(self, optimizer_variables, grads, trainable_variables)
        return apply_reduced(
            inner,
            grads,
            self._trainable_variables,
            lambda reduced: plain_stateless_apply(self, optimizer_variables, reduced, trainable_variables),
        )

    plain_check, plain_save, plain_load = kind.check_finite, kind.save_own_variables, kind.load_own_variables

    @functools.wraps(plain_check)
    def check_finite(self: Any, grads: Any) -> Any:
        finite, inner = plain_check(self, grads), self.inner_optimizer
        return inner._finite_everywhere(finite) if hasattr(inner, "_on_shares") else finite

    @functools.wraps(plain_save)
    def save_own_variables(self: Any, store: Any) -> None:
        inner = self.inner_optimizer
        if not hasattr(inner, "_on_shares"):
            return plain_save(self, store)
        for i, value in enumerate([v.numpy() for v in self._variables] + inner._whole_state()):
            store[str(i)] = value

    @functools.wraps(plain_load)
    def load_own_variables(self: Any, store: Any) -> None:
        inner = self.inner_optimizer
        if not hasattr(inner, "_on_shares") or len(store.keys()) != len(self.variables):
            return plain_load(self, store)
        values = [store[str(i)][()] for i in range(len(store.keys()))]
        for variable, value in zip(self._variables, values):
            variable.assign(value)
        inner._load_whole(values[len(self._variables) :])

    changes = {
        "apply": apply,
        "stateless_apply": stateless_apply,
        "check_finite": check_finite,
        "save_own_variables": save_own_variables,
        "load_own_variables": load_own_variables,
        "_knows_horovod": True,
    }
    for name, value in changes.items():
        _patches.replace("keras-loss-scale", kind, name, value)


def distribute(keras: Any, optimizer: Any, name: Optional[str], options: Options) -> Any:
    """A distributed optimizer with the state of ``optimizer``, which does its work.

    Raises:
        TypeError, ValueError: the options are impossible, or ``optimizer`` cannot be made a distributed one.
    """
    _arguments.name(name)
    framework = _frameworks.framework(keras)
    options.check_for_keras(framework.check_compression)
    kind = plain_kind(optimizer)
    gradients = framework.Gradients(name or f"Distributed{kind.__name__}", options)
    return distributed_class(kind, gradients)._sharing(optimizer)


def plain_kind(optimizer: Any, mixin: Optional[type[Distributed]] = None) -> Any:
    """The class of ``optimizer``, without that of a distributed optimizer.

    ValueError if a distributed optimizer with the methods of ``mixin`` would do something else than ``optimizer``.
    """
    kind: Any = getattr(type(optimizer), "_horovod_kind", type(optimizer))
    if not hasattr(kind, "get_config") or not hasattr(kind, "apply_gradients"):
        raise ValueError(f"DistributedOptimizer takes an optimizer of Keras, not {optimizer!r}")
    _check_can_share(optimizer, kind, mixin or _mixin(kind))
    return kind


def _mixin(kind: type) -> type[Distributed]:
    return _OfKeras3 if _is_of_keras_3(kind) else _OfKeras2


def _check_can_share(optimizer: Any, kind: type, mixin: type[Distributed]) -> None:
    for name in vars(optimizer):
        if name in vars(mixin):
            raise ValueError(
                f"DistributedOptimizer overrides {name}, but this {kind.__name__} has a {name} of its own, set on the "
                f"object: define it in a class derived from {kind.__name__} instead."
            )
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        if any(name not in ("__dict__", "__weakref__") for name in ([slots] if isinstance(slots, str) else slots)):
            raise ValueError(f"DistributedOptimizer takes no optimizer with __slots__, as {base.__qualname__} has")
    if _holds_distributed(optimizer):
        raise ValueError(
            f"The optimizer inside this {kind.__name__} is a distributed one, so its gradients are reduced already. "
            f"Use the {kind.__name__} as it is, or make a distributed one of an ordinary optimizer."
        )
