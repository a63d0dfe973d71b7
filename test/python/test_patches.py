"""What gorovod changes outside of itself is what its page says, and can be turned off."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from foreign import check_patches

from horovod import _program
from horovod.common import _patches

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")


def test_the_page_is_the_table():
    page = (ROOT / "docs" / "patches.md").read_text(encoding="utf-8")
    rows = {f"| `{name}` | {' | '.join(patch)} |" for name, patch in _patches.PATCHES.items()}
    assert rows == set(re.findall(r"^\| `[a-z-]+` \|.*\|$", page, re.MULTILINE))


def test_the_doctor_knows_the_names():
    doctor = [str(_program.path()), "doctor", "--env"]
    for names, code in ((f"all, {', '.join(_patches.PATCHES)}", 0), ("excepthok", 1)):
        said = subprocess.run(doctor, env={_patches.VARIABLE: names}, stdout=subprocess.PIPE, text=True, check=False)
        assert said.returncode == code, said.stdout
    assert f"there is no excepthok; the patches are {', '.join(_patches.PATCHES)}, or all\n" in said.stdout


def test_each_patch_is_made_somewhere():
    made = {
        name
        for file in Path(_patches.__file__).parents[1].rglob("*.py")
        for name in re.findall(r"_patches\.(?:wanted|replace|put)\(\s*\"([^\"]+)", file.read_text(encoding="utf-8"))
    }
    assert made == set(_patches.PATCHES)


def test_those_for_pytorch():
    program = "import horovod.torch as hvd, horovod.torch.distributed\nhvd.init()"
    futures = [f"torch.Future.{function}" for function in ("then", "add_done_callback", "set_result")]
    hooks = "torch.distributed.algorithms.ddp_comm_hooks.quantization_hooks.dist"
    check_patches(program, ["sys.excepthook", "torch._C._collect_all", *futures, hooks])


@pytest.mark.parametrize(("without", "works"), [("", True), ("torch-env-rendezvous", False), ("all", False)])
def test_the_rendezvous_is_a_patch(without, works, monkeypatch):
    """Tested by itself, because a public function puts another entry of ours into the same table."""
    pytest.importorskip("torch")
    from horovod.torch.distributed import _join

    monkeypatch.setenv(_patches.VARIABLE, without)
    handlers = {"env": None}
    rendezvous = sys.modules["torch.distributed.rendezvous"]  # torch.distributed.rendezvous is also a function
    monkeypatch.setattr(rendezvous, "_rendezvous_handlers", handlers)
    monkeypatch.setattr(_join.dist, "register_rendezvous_handler", lambda *_: None)
    _join.register_rendezvous()
    assert (handlers["env"] is not None) == works


def test_names(monkeypatch):
    monkeypatch.setenv(_patches.VARIABLE, "excepthook, keras-no-xla")
    wanted = [_patches.wanted(name) for name in ("excepthook", "keras-no-xla", "keras-loss-scale")]
    assert wanted == [False, False, True]
    monkeypatch.setenv(_patches.VARIABLE, "excepthok")
    with pytest.raises(ValueError, match="GOROVOD_WITHOUT_PATCHES has excepthok; the patches are excepthook, "):
        _patches.wanted("excepthook")
