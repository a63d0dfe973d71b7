"""What a worker of an elastic job says at its end: whole sentences, with the program's own step beside the commit."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from horovod.common import _lib, elastic
from horovod.common.exceptions import HorovodInternalError


def _state(commits: int, **values: Any) -> Any:
    kept = types.SimpleNamespace(_commits=commits, **values)
    kept._roll_back = lambda: None
    kept._write_checkpoint = lambda final: None
    return kept


@pytest.mark.parametrize(
    ("state", "kept", "says"),
    [
        (_state(-1, epoch=3), True, "Nothing was committed."),
        (_state(6), True, "Commit 6 is kept in GOROVOD_CHECKPOINT_DIR."),
        (
            _state(6, epoch=3, batch=120, lr=0.1, step=torch.tensor(7), iteration="x", global_step=True),
            True,
            "Commit 6 (epoch 3, batch 120, step 7) is kept in GOROVOD_CHECKPOINT_DIR.",
        ),
        (
            _state(6, step=9),
            False,
            "Commit 6 (step 9) is lost with it: set GOROVOD_CHECKPOINT_DIR to keep commits on a disk.",
        ),
    ],
)
def test_a_worker_says_what_becomes_of_its_work(
    state: Any, kept: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = types.SimpleNamespace(
        gorovod_elastic=lambda: _lib.ELASTIC_ABANDONED, gorovod_checkpoint_due=lambda *_: kept
    )
    monkeypatch.setattr(_lib, "load", lambda: library)

    def reset() -> None:
        raise ValueError("the launcher of this elastic job is gone")

    with pytest.raises(HorovodInternalError) as raised:
        elastic._reset(state, reset)
    assert str(raised.value) == f"the launcher of this elastic job is gone. This worker ends. {says}"


def test_setbacks_name_the_commit_as_the_program_counts(capsys: pytest.CaptureFixture[str]) -> None:
    setbacks = elastic._Setbacks()
    for _ in range(2):
        setbacks.count(_state(4, epoch=1, batch=30), HorovodInternalError("lost"))
    assert capsys.readouterr().err == "horovod: training has failed 2 times since commit 4 (epoch 1, batch 30): lost\n"
