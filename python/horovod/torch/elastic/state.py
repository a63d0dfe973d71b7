"""The state of training with PyTorch: model, optimizer and sampler, each with a handler, and plain values."""

from __future__ import annotations

import copy
from typing import Any, Optional

import torch

from horovod.common import _lib
from horovod.common.elastic import ObjectState
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


_handler_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Get the types of values that have handlers in a :class:`TorchState`.

    Returns:
        Pairs of a type and its handler's class. The first pair whose type fits a value counts.

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
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """The state of training with PyTorch.

    Each value is an attribute. Assigning to one that has a handler saves the new value at once.

    Args:
        model, optimizer: the trained model, and its optimizer; either may be left out.
        kwargs: further values. Modules, optimizers and :class:`ElasticSampler` are handled like ``model`` and
            ``optimizer``: copied at :meth:`save`. Others are plain picklable objects, such as the numbers of epoch and
            batch; of these the object itself is saved, not a copy.

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
                handled[name] = handler
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
