"""Handles models that are on a device of the driver, such as its GPU, which the executors may lack."""

from __future__ import annotations

import copy
import itertools
from typing import Any, Optional

import torch


def check(model: torch.nn.Module) -> None:
    """Raise ValueError if the model has no values yet."""
    empty = [name for name, tensor in _tensors(model) if tensor.is_meta]
    if empty:
        raise ValueError(
            f"the model's {empty[0]} is on the device meta, so it has no values: call model.to_empty(device='cpu') "
            "and initialize it"
        )


def on_cpu(model: torch.nn.Module, optimizer: Optional[Any] = None) -> tuple[torch.nn.Module, Any]:
    """The model and its optimizer on the CPU: themselves if they are there, otherwise copies."""
    if all(tensor.device.type == "cpu" for _, tensor in _tensors(model)):
        return model, optimizer
    model, optimizer = copy.deepcopy((model, optimizer))
    before = list(model.parameters())
    model.cpu()
    if optimizer is not None:
        moved = {id(old): new for old, new in zip(before, model.parameters())}
        state = optimizer.state_dict()
        for group in optimizer.param_groups:
            group["params"] = [moved.get(id(parameter), parameter) for parameter in group["params"]]
        optimizer.state.clear()
        optimizer.load_state_dict(state)
    return model, optimizer


def _tensors(model: torch.nn.Module) -> Any:
    return itertools.chain(model.named_parameters(), model.named_buffers())
