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
    # At this rate training is no chaotic process yet that magnifies every rounding error.
    options = ["--epochs", str(EPOCHS), "--lr", "0.05", "--loss-log", str(log)]
    result = subprocess.run(
        [*command, sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, f"{result.args} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "weights                bit-identical on all ranks" in result.stdout
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def test_plain_python_is_size_one(tmp_path):
    alone = train(tmp_path / "alone", [])
    launched = train(tmp_path / "launched", [HOROVODRUN, "-np", "1"])
    assert alone == launched


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_loss_curve_does_not_depend_on_the_number_of_ranks(tmp_path, ranks):
    one = train(tmp_path / "one", [HOROVODRUN, "-np", "1"])
    many = train(tmp_path / "many", [HOROVODRUN, "-np", str(ranks)])
    assert len(one) == len(many) == 25 * EPOCHS
    assert one[-1] < one[0] / 4  # it learns; a flat curve would prove nothing
    for step, (a, b) in enumerate(zip(one, many)):
        assert abs(a - b) <= 1e-4, f"step {step}: {a} on one rank, {b} on {ranks}"
