"""The code that optimizers and tapes share: gradients in, reduced gradients out."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from horovod.common._options import Options
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._collectives import allreduce, grouped_allreduce
from horovod.tensorflow.mpi_ops import Average


def check(options: Options) -> None:
    """Raise TypeError or ValueError for options of a tape, or of an optimizer of ``tf.compat.v1.train``."""
    mpi_ops.check_reduce_op(options.op)
    options.check()


def predivided(gradient_predivide_factor: float, op: int) -> tuple[float, float]:
    """The factors before and after the sum that make the result an average."""
    if op != Average:
        return 1.0, 1.0
    return 1.0 / gradient_predivide_factor, gradient_predivide_factor


def reference(variable: Any) -> Any:
    """A key that identifies a variable in a dict or set."""
    return variable.ref() if hasattr(variable, "ref") else id(variable)


def elastic() -> bool:
    """Whether the number of ranks may change while a graph exists."""
    return os.environ.get("HOROVOD_ELASTIC") == "1"


def when_shared(process_set: ProcessSet, reduce: Callable[[], Any], alone: Callable[[], Any]) -> Any:
    """``reduce()`` if this process has partners in ``process_set``, else ``alone()``.

    ValueError if the set is not initialised and has this process; outside elastic jobs, if it is not initialised at
    all.
    """
    if not elastic():
        if process_set.included() is False:
            return alone()
        mpi_ops._set_id(process_set)
        return reduce() if (process_set.size() or 0) > 1 else alone()
    set_id = mpi_ops._set_id(process_set)
    shared = tf.logical_and(
        mpi_ops.size_op(process_set_id=set_id) > 1, mpi_ops.process_set_included_op(process_set_id=set_id) > 0
    )
    return tf.cond(shared, reduce, alone)


def to_dense(gradient: Any) -> Any:
    """``gradient`` as a tensor if it is ``tf.IndexedSlices``."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


class Reducer:
    """Reduces lists of gradients over the ranks of a process set."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.sparse_as_dense = options.sparse_as_dense
        self.groups = options.groups
        self.process_set = options.process_set
        self.prescale, self.postscale = predivided(options.gradient_predivide_factor, options.op)
        self.options: dict[str, Any] = {
            "device_dense": options.device_dense,
            "device_sparse": options.device_sparse,
            "compression": options.compression,
            "op": options.op,
            "process_set": options.process_set,
        }

    def __call__(
        self, gradients: Sequence[Any], variables: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> list[Any]:
        """The reduced gradients in the order of ``gradients``; None stays None. Each is differentiable.

        ``variables`` belong to the gradients; they are needed if ``groups`` lists variables.
        ``use_generic_names`` names gradients by their numbers, for graphs in which their names differ between ranks.
        """
        gradients = list(gradients)
        if tf.executing_eagerly():
            return self._in_function(gradients, variables)
        return self._reduce(gradients, variables, use_generic_names)

    def _in_function(self, gradients: list[Any], variables: Optional[Sequence[Any]]) -> list[Any]:
        """In eager mode, one function for all gradients, so that they travel together."""
        present = [i for i, g in enumerate(gradients) if g is not None]
        if not isinstance(self.groups, list):
            variables = None  # a source that is a tensor is a new object at each step, so it cannot be a key
        key = (tuple(present), len(gradients), tuple(reference(v) for v in variables or ()))
        functions = self.__dict__.setdefault("_functions", {})
        if key not in functions:

            def reduce(some: list[Any]) -> list[Any]:
                everything: list[Any] = [None] * len(gradients)
                for i, g in zip(present, some):
                    everything[i] = g
                reduced = self._reduce(everything, variables, True)
                return [reduced[i] for i in present]

            functions[key] = tf.function(reduce, autograph=False, reduce_retracing=True)
        results: list[Any] = [None] * len(gradients)
        if present:
            for i, g in zip(present, functions[key]([gradients[i] for i in present])):
                results[i] = g
        return results

    def _reduce(self, gradients: list[Any], variables: Optional[Sequence[Any]], generic: bool) -> list[Any]:
        if self.sparse_as_dense:
            gradients = [to_dense(g) for g in gradients]
        present = [i for i, g in enumerate(gradients) if g is not None]
        results: list[Any] = list(gradients)
        if not present:
            return results

        def reduce() -> list[Any]:
            with tf.name_scope(self.name + "_Allreduce"):
                reduced: dict[int, Any] = {}
                for group in self._groups(present, variables):
                    names = [f"grad_{i}" if generic else None for i in group]
                    self._reduce_group(gradients, group, names, reduced)
                return [reduced[i] for i in present]

        def alone() -> list[Any]:
            return [self._same_kind(gradients[i]) for i in present]

        for i, g in zip(present, when_shared(self.process_set, reduce, alone)):
            results[i] = g
        return results

    @staticmethod
    def _same_kind(gradient: Any) -> Any:
        """A copy of the kind that a tf.cond needs beside a reduced gradient."""
        return tf.nest.map_structure(tf.identity, gradient, expand_composites=True) if elastic() else gradient

    def _reduce_group(
        self, gradients: list[Any], group: list[int], names: list[Optional[str]], reduced: dict[int, Any]
    ) -> None:
        scales: dict[str, Any] = {"prescale_factor": self.prescale, "postscale_factor": self.postscale}
        if len(group) > 1:
            sparse = [i for i in group if isinstance(gradients[i], tf.IndexedSlices)]
            dense = [i for i in group if i not in sparse]
            if dense:
                together = grouped_allreduce(
                    [gradients[i] for i in dense], name=names[0] and f"group_{dense[0]}", **self.options, **scales
                )
                reduced.update(zip(dense, together))
            for i in sparse:
                reduced[i] = self._reduce_one(gradients[i], f"grad_{i}" if names[0] else None, scales)
            return
        reduced[group[0]] = self._reduce_one(gradients[group[0]], names[0], scales)

    def _reduce_one(self, gradient: Any, name: Optional[str], scales: dict[str, Any]) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            return allreduce(gradient, name=name, **self.options)  # the scales of an average cancel out
        return allreduce(gradient, name=name, **self.options, **scales)

    def _groups(self, present: list[int], variables: Optional[Sequence[Any]]) -> list[list[int]]:
        """The gradients that travel as groups: lists of indices; single indices for all others."""
        if self.groups is None:
            return [[i] for i in present]
        if isinstance(self.groups, int):
            return [list(part) for part in split_list(present, min(self.groups, len(present)))]
        if variables is None:
            raise ValueError("groups of variables need to know which gradient belongs to which variable")
        index = {reference(v): i for i, v in enumerate(variables)}
        left = set(present)
        result = []
        for group in self.groups:
            members = [index[reference(v)] for v in group if index.get(reference(v)) in left]
            left.difference_update(members)
            if members:
                result.append(members)
        return result + [[i] for i in present if i in left]


_reducers: OrderedDict[Any, Reducer] = OrderedDict()
_MOST_REDUCERS = 64


def shared_reducer(name: str, options: Options) -> Reducer:
    """A :class:`Reducer` with these arguments; the same object for the same arguments.

    A tape in eager mode asks for one at each step, and the reducer keeps the traced functions.
    """
    groups, process_set = options.groups, options.process_set
    lists = groups if not isinstance(groups, list) else tuple(tuple(reference(v) for v in g) for g in groups)
    key = (
        name,
        options.device_dense,
        options.device_sparse,
        options.compression,
        options.sparse_as_dense,
        options.op,
        options.gradient_predivide_factor,
        lists,
        process_set.process_set_id,
        tuple(process_set.ranks or ()),
    )
    if key not in _reducers:
        _reducers[key] = Reducer(name, options)
        if len(_reducers) > _MOST_REDUCERS:
            _reducers.popitem(last=False)
    _reducers.move_to_end(key)
    return _reducers[key]


class LocalGradients:
    """The variables that keep gradients of their own, such as those of layers that only this rank has."""

    def __init__(self, process_set: ProcessSet, scale: bool) -> None:
        self.process_set = process_set
        self.scale = scale
        self.variables: set[Any] = set()

    def register(self, variable: Any) -> None:
        """Keep the gradients of ``variable`` from being reduced."""
        self.variables.add(reference(variable))

    def contains(self, variable: Any) -> bool:
        """Whether the gradients of ``variable`` stay local."""
        return reference(variable) in self.variables

    def scaled(self, gradient: Any) -> Any:
        """A local gradient, divided by the number of ranks if the others are averages."""
        if gradient is None or not self.scale:
            return gradient

        def divide(value: Any) -> Any:
            return value / tf.cast(mpi_ops.size_op(mpi_ops._set_id(self.process_set)), value.dtype)

        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(divide(gradient.values), gradient.indices, gradient.dense_shape)
        return divide(gradient)

    def reduced_or_scaled(
        self, gradients: Sequence[Any], variables: Sequence[Any], reduce: Callable[[list[Any], list[Any]], list[Any]]
    ) -> list[Any]:
        """Local gradients :meth:`scaled`; the others from ``reduce``, a function of gradients and variables."""
        shared = [i for i, variable in enumerate(variables) if not self.contains(variable)]
        results = [self.scaled(g) if self.contains(v) else g for g, v in zip(gradients, variables)]
        for i, gradient in zip(shared, reduce([gradients[i] for i in shared], [variables[i] for i in shared])):
            results[i] = gradient
        return results
