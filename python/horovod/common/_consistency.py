"""Checks whether ranks have the same tensors: compares digests, and names the ranks that differ."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from horovod.common import _arguments, _lib
from horovod.common.exceptions import ConsistencyError
from horovod.common.process_sets import ProcessSet

_MOST_SAID = 8  # how many tensors an error describes


class Print(NamedTuple):
    """The digest and description of one tensor of a rank."""

    kind: str  # element type and shape
    digest: bytes


def fingerprint(kind: str, address: Union[int, bytes], size: int) -> Print:
    """The fingerprint of ``size`` bytes at an address, or of a bytes object."""
    digest = (ctypes.c_uint64 * 2)()
    _lib.load().gorovod_digest(address, size, digest)
    return Print(kind, bytes(digest))


def fingerprints(values: Iterable[tuple[str, Any]]) -> dict[str, Print]:
    """The fingerprints of tensors that NumPy can read, by name. Equal names get numbers, in order."""
    import numpy as np

    prints: dict[str, Print] = {}
    for name, value in values:
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError(f"{name} has elements of type {array.dtype}: only numbers can be compared")
        distinct, number = name, 2
        while distinct in prints:
            distinct, number = f"{name} ({number})", number + 1
        flat = np.ascontiguousarray(array)
        prints[distinct] = fingerprint(f"{array.dtype} {list(array.shape)}", flat.ctypes.data, flat.nbytes)
    return prints


def fingerprints_of_variables(model: Any, value_of: Callable[[Any], Any]) -> dict[str, Print]:
    """The fingerprints of a model of TensorFlow or Keras; or of a dict or list of variables or tensors."""
    if isinstance(model, Mapping):
        named = list(model.items())
    else:
        variables = getattr(model, "trainable_variables", model)
        if not isinstance(variables, (list, tuple)):
            raise TypeError("model must have trainable_variables, or be a list or a dict of variables or tensors")
        named = [(_name(v, i), v) for i, v in enumerate(variables)]
    return fingerprints((name, value_of(v)) for name, v in named)


def _name(variable: Any, number: int) -> str:
    """Keras 3 calls it path. A tensor of an eager program has no name, and raises an exception."""
    try:
        return str(getattr(variable, "path", None) or variable.name)
    except (AttributeError, ValueError):
        return f"variable {number}"


def ranks_of(process_set: ProcessSet) -> Sequence[int]:
    """The world's ranks that are in the set."""
    if process_set.process_set_id == 0:
        return range(_lib.load().horovod_size())
    return process_set.ranks or ()


def check(mine: dict[str, Print], ranks: Sequence[int], gather: Callable[[Any, str], list[Any]]) -> None:
    """Compare the tensors of ``ranks``, all of which call this. Raises ConsistencyError on all of them.

    Args:
        mine: this rank's tensors, by name.
        ranks: the ranks that take part.
        gather: a function that returns the objects of all ranks, under a name.

    Raises:
        ConsistencyError: a tensor differs.
        ValueError: a tensor has a name that no operation can have.
    """
    for name in mine:
        if isinstance(name, str):
            _arguments.name(name)  # raises the right error
    everything = "\0".join(f"{name}\0{p.kind}\0{p.digest.hex()}" for name, p in sorted(mine.items())).encode()
    if len(set(gather(fingerprint("", everything, len(everything)).digest, "check_consistency"))) == 1:
        return
    tables = gather({name: tuple(p) for name, p in mine.items()}, "check_consistency.tensors")
    names = dict.fromkeys(name for table in tables for name in table)
    found = ((name, _difference(name, tables, ranks)) for name in names)
    differences = {name: difference for name, difference in found if difference}
    said = [text for text, _ in differences.values()][:_MOST_SAID]
    if len(differences) > _MOST_SAID:
        said.append(f"{len(differences) - _MOST_SAID} more tensors differ")
    raise ConsistencyError("; ".join(said), {name: odd for name, (_, odd) in differences.items()})


def _difference(name: str, tables: Sequence[dict[str, Any]], ranks: Sequence[int]) -> Optional[tuple[str, list[int]]]:
    """How the tensor differs, and on which ranks; None if it does not."""
    having: dict[Any, list[int]] = {}
    for rank, table in zip(ranks, tables):
        having.setdefault(table.get(name), []).append(rank)
    if len(having) == 1:
        return None
    (usual, most), *others = Counter({p: len(r) for p, r in having.items()}).most_common()
    if most == others[0][1]:
        return _without_majority(name, having)
    odd = sorted(rank for p, _ in others for rank in having[p])
    if usual is None:
        return f"{_whose(odd)} {name} is on none of the other {most} ranks", odd
    usual_kind = usual[0]
    said = []
    for kind, ranks in _by_kind({p: r for p, r in having.items() if p != usual}).items():
        if kind == usual_kind:
            said.append(f"{_whose(ranks)} {name} differs")
        else:
            said.append(_lacks(ranks, name) if kind is None else f"{_whose(ranks)} {name} is {kind}")
    if len(said) == 1 and said[0].endswith(" differs"):
        return f"{said[0]} from the other {most} ranks'", odd
    if len(said) == 1 and None in having:
        return f"{said[0]}, unlike the other {most} ranks", odd
    return f"{', '.join(said)}, the other {most} ranks' is {usual_kind}", odd


def _without_majority(name: str, having: Mapping[Any, list[int]]) -> tuple[str, list[int]]:
    """How a tensor differs of which as many ranks have one form as have another one."""
    everybody = sorted(sum(having.values(), []))
    kinds = _by_kind(having)
    if len(kinds) == 1:
        return f"{_apart(sorted(having.values()))} have different {name}", everybody
    if len(kinds) == 2 and None in kinds:
        there = next(kind for kind in kinds if kind is not None)
        return f"{_lacks(kinds[None], name)}, which is {there} on {_some(kinds[there])}", everybody
    said = [f"{kind} on {_some(ranks)}" for kind, ranks in kinds.items() if kind is not None]
    if None in kinds:
        said.append(f"missing on {_some(kinds[None])}")
    return f"{name} is {', '.join(said)}", everybody


def _by_kind(having: Mapping[Any, list[int]]) -> dict[Optional[str], list[int]]:
    """The ranks by element type and shape, the lowest first. The kind of ranks without the tensor is None."""
    kinds: dict[Optional[str], list[int]] = {}
    for p, ranks in having.items():
        kinds.setdefault(p and p[0], []).extend(ranks)
    return dict(sorted(((kind, sorted(ranks)) for kind, ranks in kinds.items()), key=lambda item: item[1]))


def _lacks(ranks: Sequence[int], name: str) -> str:
    return f"{_some(ranks)} {'has' if len(ranks) == 1 else 'have'} no {name}"


def _some(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))


def _apart(groups: Sequence[Sequence[int]]) -> str:
    """Groups of ranks: ``rank 1 and rank 3``, ``ranks 1, 3 and 5`` or ``ranks 1, 3 and ranks 5, 7``."""
    if len(groups) == 2 or any(len(g) > 1 for g in groups):
        return " and ".join(map(_some, groups))
    ranks = [str(g[0]) for g in groups]
    if len(ranks) > _MOST_SAID:
        ranks = [*ranks[:_MOST_SAID], f"{len(ranks) - _MOST_SAID} more"]
    return f"ranks {', '.join(ranks[:-1])} and {ranks[-1]}"


def _whose(ranks: Sequence[int]) -> str:
    return _some(ranks) + ("'s" if len(ranks) == 1 else "'")
