"""Which optimizers are element-wise: they update each element by its own gradient and state alone.

Only such an optimizer can be sharded: its step on a part of a parameter, without its shape, is the same part of its
step on the whole.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any, Iterator

import torch

from horovod.torch._compiling import never_trace

# Of torch.optim. A class that is derived from one of them may do anything, so it is not known.
_KNOWN = "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"
_REFUSED = {
    "LBFGS": "it decides by the gradients of all parameters together, and calls its closure as often as it likes",
    "SparseAdam": "it has a sparse gradient of whole rows; hvd.ShardedEmbedding divides such tables by rows",
    "Adafactor": "its state is of rows and columns",
    "Muon": "it updates whole matrices",
}

_ELEMENTS, _CUT, _STEPS = 24, 7, 3  # of the probe's parameter, of its first share, and how often it steps


def _class_of_torch(name: str) -> Any:
    return getattr(torch.optim, name, None)


def is_known(cls: type) -> bool:
    """Whether this is exactly one of the classes of PyTorch's element-wise optimizers."""
    return cls in [_class_of_torch(name) for name in _KNOWN if _class_of_torch(name)]


def check_elementwise(optimizer: torch.optim.Optimizer, elementwise: bool) -> None:
    """Raise ValueError unless ``optimizer`` can be sharded.

    With ``elementwise``, the caller's word for an optimizer that is not known, this steps a small made-up parameter as
    a whole and in two parts, with the options of each group, and compares them.
    """
    name = type(optimizer).__name__
    for refused, why in _REFUSED.items():
        known = _class_of_torch(refused)
        if known is not None and isinstance(optimizer, known):
            raise ValueError(f"sharded=True is for element-wise optimizers, which {name} is not: {why}")
    if not {"param_groups", "state"} <= vars(optimizer).keys():
        raise ValueError(f"sharded=True needs an optimizer with groups and state of its own, which {name} is not")
    for group in optimizer.param_groups:
        _check_options(name, group)
    if is_known(type(optimizer)):
        return
    if not elementwise:
        raise ValueError(
            f"sharded=True is for element-wise optimizers, and {name} is not known to be one. If it updates each "
            "element by its own gradient and state alone, pass elementwise=True, too"
        )
    for group in optimizer.param_groups:
        _probe(optimizer, group)


def _check_options(name: str, group: dict[str, Any]) -> None:
    if group.get("differentiable"):
        raise ValueError(f"sharded=True: {name} with differentiable=True needs whole parameters")
    if group.get("fused") and any(not p.is_cuda for p in group["params"]):
        raise ValueError(
            f"sharded=True: {name} with fused=True rounds the last elements of a CPU tensor differently from the "
            "others, so shares would not have the bits of whole parameters. Leave out fused=True"
        )


def _probe(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
    """Raise ValueError if a parameter in two shares is stepped to other values than the whole."""
    with _generators_kept():
        generator = torch.Generator().manual_seed(1)
        start = torch.randn(_ELEMENTS, generator=generator, device="cpu")
        # Gradients that differ much, so that a norm over a part is not that over the whole.
        factors = torch.logspace(-2, 2, _ELEMENTS, device="cpu")
        gradients = [torch.randn(_ELEMENTS, generator=generator, device="cpu") * factors] * _STEPS
        whole = _stepped(optimizer, group, start.view(4, -1), gradients)
        parts = [slice(0, _CUT), slice(_CUT, _ELEMENTS)]
        shares = [_stepped(optimizer, group, start[part], [g[part] for g in gradients]) for part in parts]
    if not torch.allclose(whole, torch.cat(shares), rtol=1e-6, atol=0.0, equal_nan=True):
        raise ValueError(
            f"{type(optimizer).__name__} is not element-wise: the probe's parameter, stepped in two parts, differs "
            "from the whole. Leave out sharded=True"
        )


def _stepped(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], start: torch.Tensor, gradients: list[torch.Tensor]
) -> torch.Tensor:
    p = torch.nn.Parameter(start.clone())
    cls: Any = type(optimizer)
    alone = cls.__new__(cls)
    alone.__dict__.update((key, value) for key, value in optimizer.__dict__.items() if key != "step")
    alone.state = defaultdict(dict)
    alone.param_groups = [{**group, "params": [p]}]
    for gradient in gradients:
        p.grad = gradient.view(p.shape).clone()
        try:
            alone.step()
        except Exception as e:
            raise ValueError(
                f"{type(optimizer).__name__} failed in the probe that checks whether it is element-wise: {e}"
            ) from e
    return p.detach().reshape(-1)


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


never_trace(__name__)
