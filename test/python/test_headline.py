"""The one line for an exception: what happened where it began, also in another process or behind other exceptions."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Callable, List

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from horovod.common._headline import headline


def _of(call: Callable[[], Any]) -> str:
    try:
        call()
    except BaseException as error:
        return headline(error)
    raise AssertionError("it raises nothing")


def _plain(i: int) -> None:
    raise ValueError(f"sample {i} of /data/train.rec is broken")


def _chained(i: int) -> None:
    try:
        {}["/data"]
    except KeyError as error:
        raise RuntimeError("cannot load\nthe data") from error


def _while_handling(i: int) -> None:
    try:
        {}["cached"]
    except KeyError:
        _plain(i)


class _Samples(Dataset):  # type: ignore[type-arg]
    def __init__(self, get: Callable[[int], Any]) -> None:
        self.get = get

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> Any:
        return self.get(i)


def _loaded(get: Callable[[int], Any], workers: int = 1) -> List[Any]:
    return list(DataLoader(_Samples(get), num_workers=workers, multiprocessing_context="fork" if workers else None))


_BROKEN = "ValueError: sample 0 of /data/train.rec is broken"
_CHAIN = "RuntimeError: cannot load the data, caused by KeyError: '/data'"


@pytest.mark.parametrize(
    "get, line", [(_plain, _BROKEN), (_chained, _CHAIN), (_while_handling, _BROKEN)], ids=["plain", "chain", "during"]
)
def test_the_cause_is_at_the_end(get: Callable[[int], Any], line: str) -> None:
    name = line.split(":")[0]
    caught = f"{name}: Caught {name} in DataLoader worker process 0. {line}"
    fork = multiprocessing.get_context("fork")
    assert _of(lambda: get(0)) == line
    assert _of(lambda: _loaded(get)) == caught
    assert _of(lambda: _loaded(lambda i: _loaded(get, 0))) == caught
    with ProcessPoolExecutor(1, mp_context=fork) as pool:
        assert _of(lambda: list(pool.map(get, [0]))) == line
    with fork.Pool(1) as old:
        assert _of(lambda: old.map(get, [0])) == line


def test_other_messages_are_one_bounded_line() -> None:
    assert _of(lambda: compile("x = 1\ndef f(:", "train.py", "exec")) == "SyntaxError: invalid syntax in train.py:2"
    net, other = torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)
    assert _of(lambda: net.load_state_dict(other.state_dict())).startswith(
        "RuntimeError: Error(s) in loading state_dict for Linear: size mismatch for weight: copying a param"
    )
    long = headline(ValueError("begin " + "x" * 5000 + " end"))
    assert long.startswith("ValueError: begin x") and " … x" in long and long.endswith("x end") and len(long) == 900
    assert headline(ValueError()) == "ValueError"
    assert headline(ValueError("Traceback (most recent call last):\n  of nothing")) == "ValueError:"
    ring = ValueError("a ring")
    ring.__cause__ = RuntimeError("of causes")
    ring.__cause__.__cause__ = ring
    assert headline(ring) == "ValueError: a ring, caused by RuntimeError: of causes"
