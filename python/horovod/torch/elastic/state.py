"""The state of training with PyTorch: model, optimizer and sampler, each with a handler, and plain values."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any, Optional

import torch

from horovod.common import _lib
from horovod.common._tables import Table
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.torch._sharded_optimizer import ShardedOptimizer
from horovod.torch._submission import generation
from horovod.torch._table_saves import _Saved
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import rank


class StateHandler:
    """Saves, restores and synchronises one value of a :class:`TorchState`.

    Derive a class for a type of your own, and register it by :func:`set_handler_registry`.

    Args:
        value: the value.

    Example:
        >>> from horovod.torch.elastic.state import ModelStateHandler
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> handler = ModelStateHandler(model)
        >>> saved = model.weight.item()
        >>> _ = model.weight.data.fill_(7)
        >>> handler.restore()
        >>> model.weight.item() == saved
        True
    """

    _saved: Any  # the state that save has remembered; picklable

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Remember a copy of the value's state, or raise before any change of what is remembered."""
        raise NotImplementedError

    def restore(self) -> None:
        """Give the value the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give the value rank 0's state, on all ranks, and save it. Blocks."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handle another value from now on, and save it.

        Args:
            value: the value.
        """
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Handles a ``torch.nn.Module``: its parameters and buffers.

    Args:
        model: the module.

    Example:
        >>> from horovod.torch.elastic.state import ModelStateHandler
        >>> ModelStateHandler(torch.nn.Linear(2, 1)).sync()
    """

    value: torch.nn.Module

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    def save(self) -> None:
        """Remember a copy of the parameters and buffers, once a GPU has done all collectives.

        Raises:
            HorovodInternalError: the job has failed before. The copy before stays.
        """
        _lib.settle()
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Load the copy."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """Broadcast rank 0's parameters and buffers, and save them. Blocks."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    """Handles a ``torch.optim.Optimizer``, distributed or not: its state and hyper-parameters.

    Args:
        optimizer: the optimizer.

    Example:
        >>> from horovod.torch.elastic.state import OptimizerStateHandler
        >>> OptimizerStateHandler(torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)).sync()
    """

    value: torch.optim.Optimizer

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        """Remember a copy of the optimizer's state, once a GPU has done all collectives.

        Raises:
            HorovodInternalError: the job has failed before. The copy before stays.
        """
        _lib.settle()
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Load the copy."""
        # A copy, because load_state_dict keeps the tensors that fit, and the optimizer changes them later.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Broadcast rank 0's state, and save it. Blocks."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class ShardedOptimizerStateHandler(StateHandler):
    """Handles a ``DistributedOptimizer`` with ``sharded=True``, whose state is in parts on all ranks.

    A save gathers the whole state into the host memory of every rank. So whichever ranks are lost, the others go back
    to the last commit, and deal out its state anew.

    Args:
        optimizer: the optimizer.

    Example:
        >>> from horovod.torch.elastic.state import ShardedOptimizerStateHandler
        >>> optimizer = torch.optim.Adam(torch.nn.Linear(2, 1).parameters())
        >>> ShardedOptimizerStateHandler(hvd.DistributedOptimizer(optimizer, sharded=True)).sync()
    """

    value: Any
    _saved: Any = None  # nothing until the first sync, because the other ranks may have made their states earlier

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self._saved_in = generation()

    def save(self) -> None:
        """Gather the whole state. All ranks call this. Blocks.

        Raises:
            HorovodInternalError: the job has failed. The state before stays.
        """
        _lib.settle()
        self._saved, self._saved_in = _in_host_memory(self.value.state_dict()), generation()

    def restore(self) -> None:
        """Load this rank's share of the saved state."""
        if self._saved is not None:
            self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """Give each rank its share of rank 0's state, and save it. Blocks.

        If the job has been joined anew since the last save, rank 0's state is what was saved then.
        """
        if self._saved_in != generation():
            self.restore()
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


def _in_host_memory(state: Any) -> Any:
    """A copy of a state, whose tensors are in host memory."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {key: _in_host_memory(value) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(map(_in_host_memory, state))
    return copy.deepcopy(state)


class SamplerStateHandler(StateHandler):
    """Handles an :class:`ElasticSampler`: the epoch, and its progress in it.

    Args:
        sampler: the sampler.

    Example:
        >>> from horovod.torch.elastic.state import SamplerStateHandler
        >>> SamplerStateHandler(hvd.elastic.ElasticSampler(range(4))).sync()
    """

    value: ElasticSampler

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)
        self.save()

    def save(self) -> None:
        """Remember the sampler's place in the epoch."""
        self._saved = self.value.state_dict()

    def restore(self) -> None:
        """Continue from the saved place."""
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        """Take rank 0's place in the epoch, and save it. Blocks."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


class StatefulHandler(StateHandler):
    """Handles any value with ``state_dict`` and ``load_state_dict``: a scheduler, a ``GradScaler``, a sampler, an EMA.

    A value keeps its place in the program: a scheduler goes on to drive its own optimizer. Methods among the state stay
    the value's own; PyTorch 1.13 has one in that of ``OneCycleLR``.

    Args:
        value: the value. Its state can be copied and pickled.

    Example:
        >>> from horovod.torch.elastic.state import StatefulHandler
        >>> optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)
        >>> StatefulHandler(torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)).sync()
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        """Remember a copy of the state, once a GPU has done all collectives.

        Raises:
            HorovodInternalError: the job has failed before. The copy before stays.
        """
        _lib.settle()
        self._saved = copy.deepcopy(_without_methods(self.value.state_dict()))

    def restore(self) -> None:
        """Load the copy."""
        self.value.load_state_dict(copy.deepcopy(self._saved))  # CyclicLR, for one, changes what it loads

    def sync(self) -> None:
        """Load rank 0's state, and save it. Blocks."""
        self.value.load_state_dict(copy.deepcopy(broadcast_object(_without_methods(self.value.state_dict()))))
        self.save()


def _without_methods(state: Any) -> Any:
    if isinstance(state, dict):
        kept = {key: _without_methods(value) for key, value in state.items() if not isinstance(value, MethodType)}
        return kept if type(state) is dict else type(state)(kept) if len(kept) != len(state) else state
    if type(state) in (list, tuple):
        return type(state)(map(_without_methods, state))
    return state


class TablesHandler(StateHandler):
    """Handles a list of modules with sparse tables, whose rows the state saves. The list itself has nothing to save.

    Args:
        value: the list.

    Example:
        >>> from horovod.torch.elastic.state import TablesHandler
        >>> TablesHandler([hvd.ShardedEmbedding(2)]).sync()
    """

    _saved = None

    def save(self) -> None:
        """Nothing."""

    def restore(self) -> None:
        """Nothing."""

    def sync(self) -> None:
        """Nothing."""


_handler_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Get the types of values that have handlers of their own in a :class:`TorchState`.

    Returns:
        Pairs of a type and its handler's class. The first pair whose type fits a value counts. If none does, a value
        with ``state_dict`` and ``load_state_dict`` has a :class:`StatefulHandler`.

    Example:
        >>> from horovod.torch.elastic.state import get_handler_registry
        >>> get_handler_registry()[0][0]
        <class 'torch.nn.modules.module.Module'>
    """
    return _handler_registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replace the registry, for states that are made from now on.

    Args:
        registry: in the form from :func:`get_handler_registry`.

    Example:
        >>> from horovod.torch.elastic.state import get_handler_registry, set_handler_registry
        >>> set_handler_registry(get_handler_registry())
    """
    global _handler_registry
    _handler_registry = registry


def _handler_of(value: Any) -> Optional[StateHandler]:
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, _Saved) for one in value):
        return TablesHandler(value)
    if isinstance(value, torch.nn.Module) and hasattr(value, "metric_state") and hasattr(value, "persistent"):
        value.persistent(True)  # a metric of torchmetrics: without this its state_dict is empty
        return StatefulHandler(value)
    if isinstance(value, ShardedOptimizer):
        return ShardedOptimizerStateHandler(value)
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    is_stateful = all(callable(getattr(value, method, None)) for method in ("state_dict", "load_state_dict"))
    return StatefulHandler(value) if is_stateful and not isinstance(value, type) else None


class TorchState(ObjectState):
    """The state of training with PyTorch.

    Each value is an attribute. Assigning to one that has a handler saves the new value at once.

    Args:
        model, optimizer: the trained model, and its optimizer; either may be left out.
        kwargs: further values. Modules, optimizers, :class:`ElasticSampler` and whatever has ``state_dict`` and
            ``load_state_dict``, such as a learning rate scheduler or a ``GradScaler``, are handled like ``model`` and
            ``optimizer``: their state is copied at :meth:`save`, and the objects stay the same. Others are plain
            picklable objects, such as the numbers of epoch and batch; of these the object itself is saved, not a copy.
            A commit also saves the rows of each sparse table of these modules, or of a list of them (``tables=[...]``).

    Raises:
        TypeError: a plain value holds an optimizer or a module, such as a list of models; or ``model`` or ``optimizer``
            has no state that could be saved.

    Example:
        >>> state = hvd.elastic.TorchState(model=torch.nn.Linear(2, 1), epoch=0)
        >>> state.epoch = 1
        >>> state.restore()
        >>> state.epoch
        0
    """

    _handlers: dict[str, StateHandler]

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
        handled = {}
        for name, value in {"model": model, "optimizer": optimizer, **kwargs}.items():
            handler = _handler_of(value)
            if handler is not None:
                self._check_handler(name, handler)
                handled[name] = handler
            elif name in ("model", "optimizer") and value is not None:
                raise TypeError(
                    f"TorchState({name}=...) is a {type(value).__name__}, which has no state_dict and load_state_dict. "
                    f"If there are several, pass each by a keyword of its own: TorchState({name}1=..., {name}2=...)"
                )
        object.__setattr__(self, "_handlers", {})  # __setattr__ looks at this attribute
        for name, handler in handled.items():
            object.__setattr__(self, name, handler.value)
        for name, value in {"model": model, "optimizer": optimizer}.items():
            if name not in handled:
                object.__setattr__(self, name, value)
        super().__init__(
            bcast_object=broadcast_object,
            get_rank=rank,
            **{name: value for name, value in kwargs.items() if name not in handled},
        )
        self._handlers = handled

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        handler = self._handlers.get(name)
        if handler is not None:
            handler.set_value(value)
        elif name in ("model", "optimizer") or name in self.__dict__.get("_saved_state", ()):
            handler = _handler_of(value)
            if handler is not None:  # as if it had been given at the construction
                self._check_handler(name, handler)
                self._handlers[name] = handler
                self._saved_state.pop(name, None)

    def _check_handler(self, name: str, handler: StateHandler) -> None:
        if isinstance(handler, StatefulHandler):
            described = f"a {type(handler.value).__name__} whose state_dict"
            self._check_value(name, handler._saved, described)

    def _what_to_do(self, held: Any) -> str:
        return (
            "Pass each model, optimizer and scheduler by a keyword of its own; give a class of your own state_dict and "
            "load_state_dict, or a handler: horovod.torch.elastic.state.set_handler_registry"
        )

    def _sparse_tables(self) -> list[Table]:
        tables = {}  # a table may belong to several modules
        for handler in self._handlers.values():
            values = handler.value if isinstance(handler, TablesHandler) else [handler.value]
            for value in values:
                for module in value.modules() if isinstance(value, torch.nn.Module) else ():
                    if isinstance(module, _Saved):
                        tables[module._table.name] = module._table
        return list(tables.values())

    def save(self) -> None:
        """Remember copies of the values with handlers, and the plain values themselves.

        Raises:
            HorovodInternalError: the job has failed before a GPU had done all collectives. Nothing is saved.
        """
        _lib.settle()
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Set everything to what it was at the last :meth:`save`."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def check_host_updates(self) -> None:
        """Ask rank 0 whether hosts have changed. All ranks call this. Blocks until they have.

        Raises:
            HostsUpdatedInterrupt: on all ranks, if hosts have changed. The state of sharded optimizers is saved then,
                because ranks that leave have parts of it.
        """
        try:
            super().check_host_updates()
        except HostsUpdatedInterrupt:
            sharded = [h for h in self._handlers.values() if isinstance(h, ShardedOptimizerStateHandler)]
            if not sharded:
                raise
            for handler in sharded:
                handler.save()
            raise HostsUpdatedInterrupt(skip_sync=False) from None

    def _saved(self) -> Any:
        return {name: handler._saved for name, handler in self._handlers.items()}, super()._saved()

    def _take_saved(self, saved: Any) -> None:
        handled, values = saved
        for name, handler in self._handlers.items():
            if name in handled:
                handler._saved = handled[name]
        super()._take_saved(values)

    def sync(self) -> None:
        """Set everything to rank 0's state, on all ranks, and remember it. All ranks call this. Blocks."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Deal the samplers' indices out to the present ranks, even if no :meth:`sync` follows."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()
