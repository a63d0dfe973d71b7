"""Elastic training: ``@hvd.elastic.run`` around a training function, and the state that it works on.

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            for i, batch in enumerate(loader_over(state.sampler)):
                ...
                state.sampler.record_batch(i, batch_size)
                state.commit()
            state.sampler.set_epoch(state.epoch + 1)

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
    train(state)

The loop and its rules are those of :mod:`horovod.common.elastic`.
"""

from __future__ import annotations

from typing import Any, Callable

from horovod.common import _training
from horovod.common.elastic import run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState
from horovod.torch.mpi_ops import init, shutdown

# Programs also import run_fn, init and shutdown from here, to write a loop of their own.
__all__ = ["ElasticSampler", "TorchState", "init", "run", "run_fn", "shutdown"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a :class:`TorchState`, or another ``State``.

    If a HorovodInternalError or a HostsUpdatedInterrupt leaves the function, the job is joined anew and the function is
    called again; see :mod:`horovod.common.elastic`. Other exceptions propagate.

    Args:
        func: the training function.

    Returns:
        The function in its loop. It returns what ``func`` returns.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     while state.batch < 3:
        ...         state.batch += 1
        ...         state.commit()
        ...     return state.batch
        >>> train(hvd.elastic.TorchState(batch=0))
        3
    """
    return _training.run(func)
