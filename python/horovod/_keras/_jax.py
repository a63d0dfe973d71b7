"""Keras 3 on JAX."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import jax

import horovod.jax as hvd
from horovod._keras import _framework
from horovod._keras._framework import Framework
from horovod.common._options import Options
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax import _errors
from horovod.jax.mpi_ops import check_compression

Compression = hvd.Compression


class Gradients(_framework.Gradients):
    """Reduces the gradients of one optimizer, all of them as one group."""

    def __init__(self, name: str, options: Options) -> None:
        if options.backward_passes_per_step > 1:
            raise ValueError(
                "backward_passes_per_step > 1 is not supported on JAX; use the optimizer's gradient_accumulation_steps."
            )
        super().__init__(name, options)

    def apply(
        self, optimizer: Any, gradients: list[Any], variables: Sequence[Any], apply: Callable[[list[Any]], Any]
    ) -> Any:
        """``apply`` reduced gradients."""
        self._register_weights()
        options = self._options
        n = options.process_set.size()
        results = list(gradients)
        shared = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if id(variable) not in self._local:
                shared.append(i)
            elif options.scale_local_gradients:
                results[i] = gradient / n
        if n != 1 and options.process_set.included() is not False:  # allreduce raises the error if the set has no size
            factor = options.gradient_predivide_factor
            reduced = hvd.allreduce(
                [gradients[i] for i in shared],
                name=self._name,
                compression=options.compression,
                op=options.op,
                prescale_factor=1.0 / factor,
                postscale_factor=factor,
                process_set=options.process_set,
            )
            for i, gradient in zip(shared, reduced):
                results[i] = gradient
        return apply(results)


class Jax(Framework):
    """Keras 3 on JAX."""

    Compression = Compression
    Gradients = Gradients
    front_end = hvd

    def tensor(self, value: Any) -> jax.Array:
        """An array. ``value`` may be a list of lists, which JAX itself would treat as a tree."""
        return jax.numpy.asarray(value)

    def check_compression(self, compression: Any) -> int:
        """``compression``, one of JAX's; TypeError if it is none of them."""
        return check_compression(compression)

    def internal_error(self, error: BaseException) -> Optional[HorovodInternalError]:
        """The HorovodInternalError for JAX's ``error``; None if it is not the error of a collective."""
        return _errors.internal_error(error)

    def broadcast_variables(
        self, variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
    ) -> None:
        """Overwrite variables of Keras with those of ``root_rank``, all at once."""
        values = hvd.broadcast([v.value for v in variables], root_rank, process_set=process_set)
        for variable, value in zip(variables, values):
            variable.assign(value)

    def allreduce(
        self,
        value: Any,
        name: Optional[str] = None,
        average: Optional[bool] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: Optional[int] = None,
        compression: Any = Compression.none,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        scales = (prescale_factor, postscale_factor)
        return super().allreduce(value, name, average, *scales, op, compression, process_set)

    allreduce.__doc__ = Framework.allreduce.__doc__
