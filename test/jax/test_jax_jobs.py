"""The JAX example, as whole jobs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))


def curve(launch, log):
    """The loss of each step; the accuracy must be that of something learnt."""
    command = [*launch, sys.executable, ROOT / "examples" / "jax_digits.py", "--epochs", "4", "--loss-log", log]
    result = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
    )
    assert result.returncode == 0, result.stdout
    assert float(re.search(r"test accuracy ([0-9.]+) \(", result.stdout)[1]) > 0.8, result.stdout
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def test_digits_learn_the_same_on_two_ranks(tmp_path):
    alone = curve([], tmp_path / "alone")
    assert len(alone) == 100
    assert curve([HOROVODRUN, "-np", "2"], tmp_path / "two") == pytest.approx(alone, rel=1e-2, abs=1e-3)
