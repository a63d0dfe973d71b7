"""Learning rates in the states of optimizers and schedulers."""

from __future__ import annotations

from typing import Any, Mapping

_OF_GROUPS = ("lr", "initial_lr", "max_lr", "min_lr")
_OF_SCHEDULERS = ("base_lrs", "max_lrs", "_last_lr")


def scale_optimizer(optimizer: Any, factor: float) -> None:
    """Multiply the learning rates of an optimizer."""
    for group in optimizer.param_groups:
        group.update(_groups(group, factor))


def scale_scheduler(scheduler: Any, factor: float) -> None:
    """Multiply the learning rates that a scheduler keeps."""
    for name, rates in _noted(vars(scheduler), factor).items():
        setattr(scheduler, name, rates)
    for part in getattr(scheduler, "_schedulers", ()):
        scale_scheduler(part, factor)


def scaled(checkpoint: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """A checkpoint of Lightning with other learning rates."""
    changed = dict(checkpoint)
    if "optimizer_states" in checkpoint:
        changed["optimizer_states"] = [
            {**state, "param_groups": [{**group, **_groups(group, factor)} for group in state["param_groups"]]}
            for state in checkpoint["optimizer_states"]
        ]
    if "lr_schedulers" in checkpoint:
        changed["lr_schedulers"] = [_scheduler(state, factor) for state in checkpoint["lr_schedulers"]]
    return changed


def _scheduler(state: Mapping[str, Any], factor: float) -> dict[str, Any]:
    parts = (
        {"_schedulers": [_scheduler(part, factor) for part in state["_schedulers"]]} if "_schedulers" in state else {}
    )
    return {**state, **_noted(state, factor), **parts}


def _groups(group: Mapping[str, Any], factor: float) -> dict[str, Any]:
    return {name: group[name] * factor for name in _OF_GROUPS if name in group}


def _noted(state: Mapping[str, Any], factor: float) -> dict[str, Any]:
    return {name: [rate * factor for rate in state[name]] for name in _OF_SCHEDULERS if name in state}
