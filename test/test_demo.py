"""The demo must learn, and a saved model must be what was trained."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, f"{result.args} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("ranks", [2, 4, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))])
def test_torch_demo_converges(tmp_path, ranks):
    model = tmp_path / "model.pt"
    output = run(HOROVODRUN, "-np", ranks, sys.executable, ROOT / "examples" / "pytorch_digits.py", "--save", model)
    assert "bit-identical on all ranks" in output
    assert float(re.search(r"test accuracy {4,}([0-9.]+)", output)[1]) >= 0.97
    assert output.count("training on") == 1, f"only rank 0 should speak:\n{output}"
    assert model.stat().st_size > 10_000


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go here")
@pytest.mark.parametrize("ranks", [1, 4])
def test_go_demo_converges(tmp_path, ranks):
    digits = tmp_path / "digits"
    subprocess.run(["go", "build", "-o", digits, "./examples/digits-go"], cwd=ROOT, check=True, timeout=240)
    output = run(HOROVODRUN, "-np", ranks, digits)
    assert "bit-identical on all ranks" in output
    assert float(re.search(r"test accuracy {4,}([0-9.]+)", output)[1]) >= 0.95
