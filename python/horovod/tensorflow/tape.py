"""Gradient tapes whose gradients are reduced over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

import tensorflow as tf

from horovod.common._groups import Groups, resolve_groups
from horovod.common._options import Options
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduction import LocalGradients, Reducer, check, shared_reducer
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.mpi_ops import Average

if TYPE_CHECKING:
    _Tape = Any  # the class of the wrapped tape
else:
    _Tape = object


class _DistributedGradientTape(_Tape):
    """Mixed into the class of the wrapped tape, whose state it takes over."""

    def _wrap(self, tape: tf.GradientTape, reducer: Reducer, local: LocalGradients) -> None:
        self.__dict__.update(tape.__dict__)
        self._reducer = reducer
        self._local = local

    def register_local_source(self, source: Any) -> None:
        """Keep the gradient of ``source``, a variable, from being reduced."""
        self._local.register(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The gradients, reduced over the ranks, in the structure of ``sources``."""
        gradients = super().gradient(target, sources, output_gradients, **kwargs)
        flat = tf.nest.flatten(sources)
        return tf.nest.pack_sequence_as(sources, self._reduced_or_scaled(gradients, flat, use_generic_names))

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **kwargs: Any,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """What :meth:`gradient` returns, in two lists of (source, gradient): the local sources, and the others.

        The order is that of the flattened ``sources``.
        """
        flat = tf.nest.flatten(sources)
        gradients = super().gradient(target, flat, output_gradients, **kwargs)
        pairs = list(zip(flat, self._reduced_or_scaled(gradients, flat, use_generic_names)))
        local = [(source, gradient) for source, gradient in pairs if self._local.contains(source)]
        return local, [(source, gradient) for source, gradient in pairs if not self._local.contains(source)]

    def _reduced_or_scaled(self, gradients: Any, flat: list[Any], use_generic_names: bool) -> list[Any]:
        """Gradients of the sources ``flat``: reduced, or those of this rank for the local sources."""

        def reduce(some: list[Any], of: list[Any]) -> list[Any]:
            return self._reducer(some, of, use_generic_names)

        return self._local.reduced_or_scaled(_flat_like(gradients, len(flat)), flat, reduce)


def _flat_like(gradients: Any, n: int) -> list[Any]:
    """``gradients`` as a list of ``n``; tf.nest would drop None and split tf.IndexedSlices."""
    if isinstance(gradients, (list, tuple)) and len(gradients) == n:
        return list(gradients)
    flat = tf.nest.flatten(gradients)
    if len(flat) != n:
        raise ValueError(f"{len(flat)} gradients for {n} sources: give as many gradients as sources")
    return flat


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape that continues ``gradtape``, and reduces the gradients that it returns.

    Args:
        gradtape: the tape.
        device_dense, device_sparse: the device for the arithmetic around the communication.
        compression: for the way between ranks, see :class:`Compression`.
        sparse_as_dense: turn sparse gradients into dense ones first.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        num_groups: deprecated form of a number of ``groups``.
        groups: a number of groups, or lists of variables whose gradients are reduced together.
        process_set: the ranks that train together.
        scale_local_gradients: divide gradients that are not reduced by the number of ranks.

    Returns:
        A tape that also has the methods ``register_local_source``, which keeps the gradient of a variable from being
        reduced, and ``get_local_and_global_gradients``.

    Raises:
        TypeError, ValueError: an argument is wrong.

    Example:
        >>> w = tf.Variable(3.0)
        >>> with tf.GradientTape() as tape:
        ...     loss = w * w
        >>> float(hvd.DistributedGradientTape(tape).gradient(loss, w))
        6.0
    """
    if not callable(getattr(gradtape, "gradient", None)):
        raise TypeError(f"gradtape must be a tf.GradientTape, not {gradtape!r}")
    options = Options(
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=resolve_groups(num_groups, groups),
        process_set=process_set,
    )
    check(options)
    kind = gradtape.__class__
    wrapper: Any = type(kind.__name__, (_DistributedGradientTape, kind), {})
    tape = wrapper.__new__(wrapper)
    local = LocalGradients(process_set, scale_local_gradients)
    tape._wrap(gradtape, shared_reducer("DistributedGradientTape", options), local)
    return tape


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Optional[Any] = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A :func:`DistributedGradientTape` that leaves the weights of ``local_layers`` to each rank.

    Args:
        gradtape: the tape.
        device_dense, device_sparse: the device for the arithmetic around the communication.
        compression: for the way between ranks, see :class:`Compression`.
        sparse_as_dense: turn sparse gradients into dense ones first.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: divide by this before the sum, and by the rest of the number of ranks after it.
        num_groups: deprecated form of a number of ``groups``.
        groups: a number of groups, or lists of variables whose gradients are reduced together.
        process_set: the ranks that train together.
        scale_local_gradients: divide gradients that are not reduced by the number of ranks.
        local_layers: a built layer, or a list of them.

    Returns:
        As :func:`DistributedGradientTape`.

    Raises:
        TypeError, ValueError: an argument is wrong.

    Example:
        >>> layer = tf.keras.layers.Dense(1)
        >>> x = layer(tf.ones([1, 2]))
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(layer(tf.ones([1, 2])))
        >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=layer)
        >>> [g.shape.as_list() for g in tape.gradient(loss, layer.trainable_weights)]
        [[2, 1], [1]]
    """
    layers: Sequence[Any] = []
    if local_layers is not None:
        layers = local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
        if not all(isinstance(layer, tf.keras.layers.Layer) for layer in layers):
            raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups=resolve_groups(num_groups, groups),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
