"""Distributed optimizers: classes of Keras whose gradients are reduced over the ranks before they are applied.

The class of a distributed optimizer has the name, module and configuration of the class that it is made from. So a
model that is saved with it can be loaded without Horovod.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence

from horovod._keras import _frameworks
from horovod.common import _arguments, _patches
from horovod.common._options import Options

if TYPE_CHECKING:
    _OfKeras = Any  # the class that the classes below are mixed into
else:
    _OfKeras = object


class _Distributed(_OfKeras):
    """The methods of all distributed optimizers."""

    def _distribute(self, gradients: Any) -> None:
        # Not by __setattr__, because Keras would search it for variables, and save them with the model.
        self.__dict__["_horovod_gradients"] = gradients

    def register_local_var(self, var: Any) -> None:
        """Keep the gradient of ``var`` from being reduced."""
        self._horovod_gradients.register_local_var(var)

    def register_local_layers(self, layers: Sequence[Any]) -> None:
        """Keep the gradients of all weights of ``layers`` from being reduced. The layers may be built later."""
        self._horovod_gradients.register_local_layers(layers)

    @contextlib.contextmanager
    def _taking_reduced(self) -> Iterator[None]:
        """A context in which the gradients to apply have been reduced already."""
        self.__dict__["_horovod_reduced"] = True
        try:
            yield
        finally:
            del self.__dict__["_horovod_reduced"]

    def _takes_reduced(self) -> bool:
        return "_horovod_reduced" in self.__dict__


class _OfKeras3(_Distributed):
    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Sequence[Any]] = None) -> None:
        """As Keras' method, with the reduced gradients."""
        grads = list(grads)
        if not grads or self._takes_reduced():
            return super().apply(grads, trainable_variables)
        if trainable_variables is None:
            variables = self._trainable_variables
        else:
            variables = trainable_variables = list(trainable_variables)
            if not self.built:  # here, because below this may be inside a branch
                self.build(variables)

        apply = super().apply
        self._horovod_gradients.apply(
            self, grads, variables, lambda reduced: apply(list(reduced), trainable_variables) and None
        )


class _OfKeras2(_Distributed):
    """Horovod's class for Keras 2 reduces where gradients are computed. This one also reduces gradients from elsewhere.

    So the calls that follow do not reduce the gradients of :meth:`_compute_gradients` and :meth:`get_gradients` again.
    """

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
        self.__dict__["_horovod_reduced_last"] = True
        return reduced

    def _were_reduced(self) -> bool:
        """Whether the gradients that arrive now were reduced where they were computed. Ask once."""
        return self.__dict__.pop("_horovod_reduced_last", False)

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
        if not pairs or reduced_elsewhere:
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
        if self._takes_reduced():
            return grads_and_vars
        pairs = list(grads_and_vars)
        if self._were_reduced() and self._agg_helper is None:
            return pairs
        variables = [v for _, v in pairs]
        return list(zip(self._horovod_gradients.reduced([g for g, _ in pairs], variables), variables))


def is_distributed(optimizer: Any) -> bool:
    """Whether ``optimizer``, or the optimizer inside a LossScaleOptimizer, reduces gradients already."""
    return isinstance(optimizer, _Distributed) or isinstance(getattr(optimizer, "inner_optimizer", None), _Distributed)


def _is_of_keras_3(kind: type) -> bool:
    return hasattr(kind, "stateless_apply")


@functools.lru_cache(maxsize=None)
def distributed_class(kind: Any) -> Any:
    """The distributed form of a class of optimizers; that of one is itself."""
    if issubclass(kind, _Distributed):
        return kind
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    # Keras 2 reads these attributes to learn the exported name.
    names.update({k: v for k, v in vars(kind).items() if k.startswith("_keras_api_names")})
    made = type(kind.__name__, (_OfKeras3 if _is_of_keras_3(kind) else _OfKeras2, kind), names)
    made.__qualname__ = kind.__qualname__
    _save_as(made, kind)
    return made


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
        if not isinstance(inner, _Distributed):
            return plain_apply(self, grads, trainable_variables)
        if not self.built:  # here, because below this may be inside a branch
            self.build(list(trainable_variables))
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        apply_reduced(inner, grads, variables, lambda reduced: plain_apply(self, reduced, trainable_variables) and None)

    @functools.wraps(plain_stateless_apply)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        inner = self.inner_optimizer
        if not isinstance(inner, _Distributed):
            return plain_stateless_apply(self, optimizer_variables, grads, trainable_variables)
        return apply_reduced(
            inner,
            grads,
            self._trainable_variables,
            lambda reduced: plain_stateless_apply(self, optimizer_variables, reduced, trainable_variables),
        )

    for name, value in (("apply", apply), ("stateless_apply", stateless_apply), ("_knows_horovod", True)):
        _patches.replace("keras-loss-scale", kind, name, value)


def distribute(keras: Any, optimizer: Any, name: Optional[str], options: Options) -> Any:
    """A distributed optimizer that does the work of ``optimizer``. TypeError or ValueError for impossible options."""
    _arguments.name(name)
    framework = _frameworks.framework(keras)
    options.check_for_keras(framework.check_compression)
    kind: Any = type(optimizer)
    if not hasattr(kind, "get_config") or not hasattr(kind, "apply_gradients"):
        raise ValueError(f"DistributedOptimizer takes an optimizer of Keras, not {optimizer!r}")
    made: Any = distributed_class(kind).from_config(_config(optimizer))
    _keep_state(optimizer, made)
    made._distribute(framework.Gradients(name or f"Distributed{kind.__name__}", options))
    framework.prepare(made, is_distributed)
    _reduce_before_unscaling(keras)
    return made


def distribute_in_place(keras: Any, optimizer: Any, options: Options) -> None:
    """Make ``optimizer`` itself a distributed one; it keeps its state."""
    framework = _frameworks.framework(keras)
    options.check_for_keras(framework.check_compression)
    kind: Any = type(optimizer)
    optimizer.__class__ = distributed_class(kind)
    optimizer._distribute(framework.Gradients(f"Distributed{kind.__name__}", options))
    framework.prepare(optimizer, is_distributed)
    _reduce_before_unscaling(keras)


def _config(optimizer: Any) -> dict[str, Any]:
    """The configuration. A learning rate schedule is the object itself, so its class need not be registered."""
    config = optimizer.get_config()
    rate = vars(optimizer).get("_learning_rate", vars(optimizer).get("_hyper", {}).get("learning_rate"))
    if isinstance(config.get("learning_rate"), dict) and callable(rate):
        config["learning_rate"] = rate
    return config


def _keep_state(optimizer: Any, made: Any) -> None:
    """Copy the state of a Keras 3 optimizer; other ones cannot tell which variables their state belongs to."""
    variables = getattr(optimizer, "_trainable_variables", None)
    if not (_is_of_keras_3(type(optimizer)) and optimizer.built and variables):
        return
    made.build(list(variables))
    for new, old in zip(made.variables, optimizer.variables):
        new.assign(old)
