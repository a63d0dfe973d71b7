"""Saved states of sharded optimizers: whole ones, in PyTorch's form, and those of one rank's shares.

Both are dicts with ``state``, by the numbers of parameters, and ``param_groups``. One of shares also has ``shares``,
which says of which rank, and of which parameters.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple, Optional, Sequence

import torch

from horovod.torch._compiling import never_trace
from horovod.torch._parameter_share import flat_like

SHARES, MASTER = "shares", "master"  # the keys of what other optimizers do not have

# In the state of PyTorch's optimizers: what is one number for a parameter, also for one without dimensions.
_NUMBERS = frozenset(("step", "eta", "mu", "mu_product"))


class Shape(NamedTuple):
    """Represents a tensor in a description of state."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, p: torch.Tensor) -> torch.Tensor:
        """A tensor like it, on the device of ``p`` unless it is a number."""
        return torch.empty(self.shape, dtype=self.dtype, device=p.device if self.shape else "cpu")


class Whole:
    """A whole state that was loaded, by the numbers of parameters in the groups."""

    def __init__(self, state_dict: dict[str, Any], parameters: Sequence[torch.Tensor]) -> None:
        self._states = [state_dict["state"].get(number, {}) for number in _numbers(state_dict)]
        self._parameters = parameters

    def described(self) -> list[dict[str, Any]]:
        """The states with a :class:`Shape` for each tensor."""
        return [
            {k: Shape(tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else v for k, v in state.items()}
            for state in self._states
        ]

    def tensor(self, number: int, key: str) -> torch.Tensor:
        """One of the tensors, contiguous, where its parameter is; a number in host memory."""
        value: torch.Tensor = self._states[number][key].detach().contiguous()
        return value.to(self._parameters[number].device if value.dim() else "cpu")


def is_whole(key: str, value: Any, p: torch.Tensor) -> bool:
    """Whether ``value``, from the state of ``p``, has one element for each of the parameter's."""
    return isinstance(value, torch.Tensor) and value.shape == p.shape and (p.dim() > 0 or key not in _NUMBERS)


def is_share(value: Any, elements: int) -> bool:
    """Whether ``value``, from the state of a share of so many elements, has one for each of them."""
    return isinstance(value, torch.Tensor) and value.shape == (elements,)


def shaped(elements: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Elements in the order of the memory of ``p`` as a tensor of its shape and memory format."""
    return elements.view(p.shape) if p.is_contiguous() else elements.as_strided(p.shape, p.stride())


def dtype_of(key: str, p: torch.Tensor, value: torch.Tensor) -> torch.dtype:
    """The element type in which the state of ``p`` has ``value``: PyTorch's rule, for float32 masters."""
    if key in _NUMBERS or not value.is_floating_point():
        return value.dtype
    return torch.float32 if p.dtype in (torch.float16, torch.bfloat16) else p.dtype


def described(place: tuple[int, int], parameters: Sequence[torch.Tensor]) -> dict[str, Any]:
    """What a state of shares says about itself."""
    layouts = [(tuple(p.shape), tuple(p.stride())) for p in parameters]
    return {"rank": place[0], "ranks": place[1], "layouts": layouts}


def _bounds(n: int, place: tuple[int, int]) -> tuple[int, int]:
    rank, ranks = place
    each, rest = divmod(n, ranks)
    begin = each * rank + min(rank, rest)
    return begin, begin + each + (rank < rest)


def _numbers(state_dict: dict[str, Any]) -> list[Any]:
    """The numbers by which a saved state knows the parameters of its groups, in their order."""
    return list(chain.from_iterable(group["params"] for group in state_dict["param_groups"]))


def _check_number(state_dict: dict[str, Any], parameters: Sequence[torch.Tensor]) -> None:
    found = len(_numbers(state_dict))
    if found != len(parameters):
        raise ValueError(f"the saved state is of {found} parameters, the optimizer has {len(parameters)}")


def _check_layouts(shares: dict[str, Any], parameters: Sequence[torch.Tensor], names: Sequence[str]) -> None:
    for (shape, strides), p, name in zip(shares["layouts"], parameters, names):
        if (tuple(shape), tuple(strides)) != (tuple(p.shape), tuple(p.stride())):
            raise ValueError(
                f"the saved shares are of other parameters: {name} has the shape {list(p.shape)} and strides "
                f"{list(p.stride())}, and there {list(shape)} and {list(strides)}"
            )


def cut(
    state_dict: dict[str, Any], place: tuple[int, int], parameters: Sequence[torch.Tensor], names: Sequence[str]
) -> dict[str, Any]:
    """A whole saved state with this rank's shares of its tensors, in memory of their own."""
    _check_number(state_dict, parameters)
    states = dict(state_dict["state"])
    for number, p, name in zip(_numbers(state_dict), parameters, names):
        begin, end = _bounds(p.numel(), place)
        state = {}
        for key, value in states.pop(number, {}).items():
            if is_whole(key, value, p):
                value = flat_like(value, p)[begin:end].clone()
            elif isinstance(value, torch.Tensor) and value.dim() > 0:
                raise ValueError(
                    f"the saved state is of other parameters: {key} of {name} has the shape {list(value.shape)}, the "
                    f"parameter has {list(p.shape)}"
                )
            elif isinstance(value, torch.Tensor):
                value = value.clone()
            state[key] = value
        if state:
            states[number] = state
    return {**state_dict, "state": states}


def of_this_rank(
    state_dict: dict[str, Any], place: tuple[int, int], parameters: Sequence[torch.Tensor], names: Sequence[str]
) -> dict[str, Any]:
    """The saved state of this rank's own shares."""
    shares = state_dict[SHARES]
    if (shares["rank"], shares["ranks"]) != place:
        raise ValueError(
            f"the saved state has share {shares['rank']} of {shares['ranks']}, and this rank needs {place[0]} of "
            f"{place[1]}: give a list of all {shares['ranks']} saved states"
        )
    return merged([state_dict], place, parameters, names, only=True)


def merged(
    state_dicts: Sequence[dict[str, Any]],
    place: tuple[int, int],
    parameters: Sequence[torch.Tensor],
    names: Sequence[str],
    only: bool = False,
) -> dict[str, Any]:
    """This rank's shares of what these saved states have together: those of all ranks, or ``only`` this one's."""
    if not all(isinstance(saved, dict) and SHARES in saved for saved in state_dicts) or not state_dicts:
        raise ValueError("a list of saved states must have the results of sharded_state_dict() of all ranks")
    by_rank = {saved[SHARES]["rank"]: saved for saved in state_dicts}
    ranks = state_dicts[0][SHARES]["ranks"]
    if not only and (set(by_rank) != set(range(ranks)) or len(state_dicts) != ranks):
        raise ValueError(f"of {ranks} saved shares, these are there: {sorted(by_rank)}")
    for saved in state_dicts:
        if saved[SHARES]["ranks"] != ranks:
            raise ValueError("the saved states are of different numbers of ranks")
        _check_number(saved, parameters)
        _check_layouts(saved[SHARES], parameters, names)
    first = state_dicts[0]
    states = {k: v for k, v in first["state"].items() if k not in set(_numbers(first))}
    for number, p, name in zip(_numbers(first), parameters, names):
        begin, end = _bounds(p.numel(), place)
        state = {}
        for key, value in first["state"].get(number, {}).items():
            if is_share(value, _length(p, first)):
                pieces = []
                for r in sorted(by_rank):
                    low, high = _bounds(p.numel(), (r, ranks))
                    piece = _piece(by_rank[r], number, key, name, high - low)
                    pieces.append(piece[max(begin - low, 0) : max(end - low, 0)])
                value = torch.cat(pieces)
            elif isinstance(value, torch.Tensor):
                value = value.clone()
            state[key] = value
        if state:
            states[number] = state
    return {"state": states, "param_groups": first["param_groups"]}


def _length(p: torch.Tensor, saved: dict[str, Any]) -> int:
    begin, end = _bounds(p.numel(), (saved[SHARES]["rank"], saved[SHARES]["ranks"]))
    return end - begin


def _piece(saved: dict[str, Any], number: Any, key: str, name: str, length: int) -> torch.Tensor:
    value: Optional[torch.Tensor] = saved["state"].get(number, {}).get(key)
    if not is_share(value, length):
        rank = saved[SHARES]["rank"]
        raise ValueError(f"the saved share of rank {rank} lacks {key} of {name}, or has it in another length")
    assert value is not None
    return value


def without_masters(state_dict: dict[str, Any], parameters: Sequence[torch.Tensor]) -> dict[torch.Tensor, torch.Tensor]:
    """Take the masters, which PyTorch's optimizers do not know, out of a state of this rank's shares."""
    masters = {}
    for number, p in zip(_numbers(state_dict), parameters):
        state = state_dict["state"].get(number, {})
        if MASTER in state:
            masters[p] = state.pop(MASTER)
            if not state:
                del state_dict["state"][number]
    return masters


never_trace(__name__)
