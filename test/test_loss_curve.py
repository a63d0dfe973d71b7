"""Training on four ranks must follow the same loss curve as training on one.

A gradient that is lost, summed instead of averaged, or taken from a wrong
tensor bends the curve within a few steps; the rounding of sums in another order does not.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "pytorch_digits.py"
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
EPOCHS = 6  # 25 steps each


def train(log, command):
    """Trains for a few epochs under command and returns each step's loss."""
    # At this rate training does not yet magnify every rounding error.
    options = ["--epochs", str(EPOCHS), "--lr", "0.05", "--loss-log", str(log)]
    result = subprocess.run(
        [*command, sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, f"{result.args} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "weights                bit-identical on all ranks" in result.stdout
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The losses of a job of one rank."""
    return train(tmp_path_factory.mktemp("curve") / "one", [HOROVODRUN, "-np", "1"])


def test_plain_python_is_size_one(one, tmp_path):
    assert train(tmp_path / "alone", []) == one


@pytest.mark.parametrize("ranks", [2, 4, pytest.param(3, marks=pytest.mark.long)])
def test_loss_curve_does_not_depend_on_the_number_of_ranks(one, tmp_path, ranks):
    many = train(tmp_path / "many", [HOROVODRUN, "-np", str(ranks)])
    assert len(one) == len(many) == 25 * EPOCHS
    assert one[-1] < one[0] / 4  # it learns; a flat curve would prove nothing
    for step, (a, b) in enumerate(zip(one, many)):
        assert abs(a - b) <= 1e-4, f"step {step}: {a} on one rank, {b} on {ranks}"
