"""Sharded optimizers: ``DistributedOptimizer`` with ``sharded=True``, on TensorFlow.

The optimizer is built over this rank's shares of the model's variables, so its state is of shares, too. A step has
these phases, each with a name of its own in timelines and errors:

1. Each gradient is reduced by a reducescatter: this rank's share of it gets the result.
2. The step of the optimizer's own class updates the shares.
3. The shares are gathered, and assigned to the model's variables.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Iterator, Optional, Sequence

from horovod._keras import _copies, _frameworks
from horovod._keras import optimizer as _optimizer
from horovod._keras.optimizer import Distributed
from horovod.common import _arguments
from horovod.common._options import Options


class Sharded(Distributed):
    """The methods of all sharded optimizers. ``_horovod_gradients`` is a ``Shares``."""

    __slots__ = ()

    def __copy__(self) -> Any:
        raise TypeError(
            "a sharded DistributedOptimizer cannot be copied or pickled, because the other ranks have parts of it: "
            "save the model inside `with optimizer.gathered():`, which all ranks enter"
        )

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__copy__()

    def get_config(self) -> Any:
        """As Keras' method. It does not tell that the optimizer is distributed."""
        if any("hdf5" in name for name in _copies.functions_of_keras()):
            raise ValueError("a sharded optimizer cannot be saved in HDF5: save the model as .keras, or without it")
        return super().get_config()

    # ---- state

    def build(self, variables: Sequence[Any]) -> None:
        """As Keras' method, for this rank's shares of ``variables``. State that was built before is cut."""
        import tensorflow as tf

        shares = self._horovod_gradients
        if shares.shares:
            return
        with tf.init_scope():
            if not tf.executing_eagerly():
                raise NotImplementedError("sharded=True does not work in graphs of TensorFlow 1")
            before = self._take_state()
            shares.build(list(variables))
            fixed = len(self._own_variables())
            super().build([share.inner for share in shares.shares])
            for variable in self._own_variables()[fixed:]:
                if shares.share_of_state(variable) is None and tuple(variable.shape):
                    raise ValueError(
                        f"sharded=True: {type(self).__name__} makes state of the shape {list(variable.shape)} without "
                        "add_variable_from_reference(), so it is not known whose share it is"
                    )
            if before is not None:
                self._load_whole(before)

    def _own_variables(self) -> list[Any]:
        return list(self._variables)

    def _take_state(self) -> Optional[list[Any]]:
        """The values of all variables if the optimizer is built for whole variables; then it is no longer."""
        if not (getattr(self, "built", False) or getattr(self, "_built", False)):
            return None
        this: Any = self  # these names are no slots
        values = [v.numpy() for v in self._own_variables()]
        fixed = [getattr(self, name, None) for name in ("_iterations", "_learning_rate", "_current_learning_rate")]
        state = [v for v in self._own_variables() if not any(v is f for f in fixed)]
        if hasattr(self, "_untrack_variable"):  # Keras 3
            for variable in state:
                self._untrack_variable(variable)
            self._trainable_variables_indices.clear()
            this.built = False
        else:
            this._variables = [v for v in self._own_variables() if any(v is f for f in fixed)]
            this._built = False
        return values

    def _load_whole(self, values: Sequence[Any]) -> None:
        """Keep this rank's shares of ``values``, the whole state."""
        variables = self._own_variables()
        if len(values) != len(variables):
            raise ValueError(f"the optimizer has {len(variables)} variables, and the given state has {len(values)}")
        for variable, value in zip(variables, values):
            share = self._horovod_gradients.share_of_state(variable)
            variable.assign(value if share is None else share.cut(value))

    def add_variable_from_reference(self, *args: Any, **kwargs: Any) -> Any:
        """As Keras' method."""
        made = super().add_variable_from_reference(*args, **kwargs)
        named = kwargs.get("reference_variable", kwargs.get("model_variable"))  # in Keras 3, in Keras 2
        self._horovod_gradients.note_state(made, args[0] if args else named)
        return made

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """A context in which each rank has the whole state, so that any of them can save the model. All ranks enter it.

        Example:
            >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sharded=True)
            >>> with optimizer.gathered():
            ...     pass
        """
        shares = self._horovod_gradients
        shares.whole_state = shares.gathered_state(self._own_variables())
        try:
            yield
        finally:
            shares.whole_state = None

    def _whole_state(self) -> list[Any]:
        if self._horovod_gradients.whole_state is None:
            raise ValueError(
                "a sharded optimizer is saved inside `with optimizer.gathered():`, which all ranks enter, because each "
                "has only its share of the state"
            )
        return self._horovod_gradients.whole_state

    def save_own_variables(self, store: Any) -> None:
        """Save the whole state, as an optimizer that is not sharded does. ValueError outside of :meth:`gathered`."""
        for i, value in enumerate(self._whole_state()):
            store[str(i)] = value

    def load_own_variables(self, store: Any) -> None:
        """Load the whole state, and keep this rank's share."""
        if len(store.keys()) != len(self._own_variables()):
            super().load_own_variables(store)  # it warns, and loads nothing
            return
        self._load_whole([store[str(i)][()] for i in range(len(store.keys()))])

    def _trackable_children(self, save_type: Any = "checkpoint", **kwargs: Any) -> Any:
        if save_type == "checkpoint":
            raise ValueError("a sharded optimizer cannot be in a tf.train.Checkpoint: save the model as .keras")
        return super()._trackable_children(save_type, **kwargs)

    @property
    def _model_variables_moving_average(self) -> Any:
        """The averages of the inner variables, with ``use_ema``. Keras' SwapEMAWeights would leave the model alone."""
        if sys._getframe(1).f_globals.get("__name__", "").endswith("swap_ema_weights"):
            raise ValueError(
                "a sharded optimizer does not work with SwapEMAWeights, because each rank has only its share of the "
                "averages. At the end of `fit` the model has them"
            )
        try:
            return vars(self)["_model_variables_moving_average"]
        except KeyError:
            raise AttributeError("_model_variables_moving_average") from None

    @_model_variables_moving_average.setter
    def _model_variables_moving_average(self, value: Any) -> None:
        state: dict[str, Any] = vars(self)  # type: ignore[assignment]  # not that of a class
        state["_model_variables_moving_average"] = value

    # ---- the step

    def _on_shares(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        apply: Callable[[list[Any], list[Any]], Any],
        reduce: bool = True,
    ) -> Any:
        """``apply`` the reduced shares of ``gradients`` to inner variables, then gather these."""
        shares = self._horovod_gradients
        self.build(variables)
        shares.meet()
        reduced = shares.scatter(gradients, variables, reduce)
        shares.compare(self._iterations, reduced)
        mine = [shares.of(v) for v in variables]
        updated = [share for share, g in zip(mine, reduced) if g is not None]
        used = shares.shares if self.use_ema else updated  # averages may overwrite all of them
        shares.prepare(used)
        with self._taking_reduced():
            result = apply(reduced, [share.inner for share in mine])
        shares.gather(used)
        shares.constrain(updated)
        return result

    def _finite_everywhere(self, finite: Any) -> Any:
        return self._horovod_gradients.everywhere(finite)

    def _clip_gradients(self, grads: Any) -> Any:
        import tensorflow as tf

        grads = list(grads)
        present = [i for i, g in enumerate(grads) if g is not None]
        by_variable = bool(self.clipnorm and self.clipnorm > 0)
        if not present or not (by_variable or (self.global_clipnorm and self.global_clipnorm > 0)):
            return super()._clip_gradients(grads)
        squares = self._horovod_gradients.squares([grads[i] for i in present])
        limit = tf.cast(self.clipnorm if by_variable else self.global_clipnorm, squares.dtype)
        norms = tf.sqrt(squares if by_variable else tf.fill([len(present)], tf.reduce_sum(squares)))
        for number, i in enumerate(present):
            grads[i] = grads[i] * tf.cast(limit / tf.maximum(norms[number], limit), grads[i].dtype)
        return grads

    def _use_weight_decay(self, variable: Any) -> bool:
        return super()._use_weight_decay(self._horovod_gradients.of(variable).whole)

    def finalize_variable_values(self, var_list: Any) -> None:
        """As Keras' method: with ``use_ema``, overwrite the model's variables with averages. All ranks call it."""
        shares = self._horovod_gradients
        if not self.use_ema or not shares.shares:
            return
        super().finalize_variable_values([share.inner for share in shares.shares])
        shares.gather(shares.shares)


class _OfKeras3(Sharded):
    """Scatters in the outermost of the methods that apply gradients."""

    __slots__ = ()

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Sequence[Any]] = None) -> None:
        """As Keras' method, with the reduced gradients, on shares."""
        grads = list(grads)
        if not grads or self._horovod_takes_reduced:
            return super().apply(grads, trainable_variables)
        if trainable_variables is None:
            variables = [share.variable for share in self._horovod_gradients.shares]
        else:
            variables = list(trainable_variables)
        if len(variables) != len(grads):
            raise ValueError(f"there are {len(grads)} gradients for {len(variables)} variables")
        return self._on_shares(grads, variables, super().apply)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """As Keras' method, with the reduced gradients, on shares."""
        pairs = list(grads_and_vars)
        if not pairs or self._horovod_takes_reduced:
            return super().apply_gradients(pairs, *args, **kwargs)
        apply = super().apply_gradients
        return self._on_shares(
            [g for g, _ in pairs],
            [v for _, v in pairs],
            lambda grads, inner: apply(list(zip(grads, inner)), *args, **kwargs),
        )


class _OfKeras2(Sharded):
    __slots__ = ()

    def apply_gradients(
        self, grads_and_vars: Any, name: Any = None, skip_gradients_aggregation: bool = False, **kwargs: Any
    ) -> Any:
        """As Keras' method, with the reduced gradients, on shares."""
        pairs = list(grads_and_vars)
        apply = super().apply_gradients
        if not pairs or self._horovod_takes_reduced:
            return apply(pairs, name, skip_gradients_aggregation=True, **kwargs)
        reduce = not skip_gradients_aggregation and kwargs.pop("experimental_aggregate_gradients", True)
        return self._on_shares(
            [g for g, _ in pairs],
            [v for _, v in pairs],
            lambda grads, inner: apply(list(zip(grads, inner)), name, skip_gradients_aggregation=True, **kwargs),
            reduce,
        )

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """Called by Keras 2's LossScaleOptimizer, which would need the whole reduced gradients."""
        raise NotImplementedError(
            "sharded=True does not work inside a LossScaleOptimizer of Keras 2: use mixed_bfloat16, or Keras 3"
        )


def is_sharded(optimizer: Any) -> bool:
    """Whether ``optimizer``, or the optimizer inside a LossScaleOptimizer, is a sharded one."""
    return isinstance(optimizer, Sharded) or isinstance(getattr(optimizer, "inner_optimizer", None), Sharded)


def distribute(
    keras: Any, optimizer: Any, name: Optional[str], options: Options, sharded: bool = False, elementwise: bool = False
) -> Any:
    """As :func:`horovod._keras.optimizer.distribute`; ``sharded`` makes it a sharded optimizer.

    Raises:
        NotImplementedError: ``sharded`` where Keras does not run on TensorFlow.
        TypeError, ValueError: arguments exclude each other, or ``optimizer`` is not known to be element-wise.
    """
    if not sharded:
        if elementwise:
            raise ValueError("elementwise=True has a meaning only with sharded=True")
        return _optimizer.distribute(keras, optimizer, name, options)
    backend = _frameworks.backend(keras)
    if backend != "tensorflow":
        raise NotImplementedError(
            f"sharded=True works where Keras runs on TensorFlow; here it runs on {backend}. Leave out sharded=True, or "
            "train a PyTorch model with horovod.torch, whose DistributedOptimizer has it, too"
        )
    framework = _frameworks.framework(keras)
    options.check_for_keras(framework.check_compression)
    _check_options(options, framework.Compression.none)
    _arguments.name(name)
    if isinstance(optimizer, Sharded):
        raise ValueError("this optimizer is a sharded one already")
    mixin = _OfKeras3 if _frameworks.major(keras) == 3 else _OfKeras2
    kind = _optimizer.plain_kind(optimizer, mixin)
    from horovod._keras._sharded_elementwise import check_elementwise
    from horovod._keras._sharded_variables import Shares

    check_elementwise(optimizer, kind, elementwise)
    shares = Shares(name or f"Distributed{kind.__name__}", options)
    return _optimizer.distributed_class(kind, shares, mixin)._sharing(optimizer)


def _check_options(options: Options, uncompressed: Any) -> None:
    if options.compression is not uncompressed:
        raise ValueError(
            "sharded=True sends gradients as they are, so compression must be Compression.none, not "
            f"{options.compression!r}"
        )
    if options.backward_passes_per_step > 1:
        raise ValueError(
            "sharded=True does not work with backward_passes_per_step: give the optimizer of Keras 3 "
            "gradient_accumulation_steps"
        )
    if options.groups is not None:
        raise ValueError("sharded=True does not work with groups or num_groups: gradients are fused without them")
