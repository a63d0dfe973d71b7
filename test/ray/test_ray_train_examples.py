"""The examples for Ray run, briefly, and do what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "ray"
pytestmark = pytest.mark.long


def run(name, *options):
    command = [sys.executable, str(EXAMPLES / name), *options]
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_executor():
    output = run("digits_executor.py", "--workers", "2", "--epochs", "3")
    assert len(re.findall(r"^epoch", output, re.MULTILINE)) == 3
    assert float(re.search(r"^test accuracy ([0-9.]+) on 2 ranks", output, re.MULTILINE)[1]) > 0.9


def test_train_after_a_death():
    output = run("digits_train.py", "--epochs", "3", "--kill-at", "2")
    assert "have failed" in output
    assert float(re.search(r"^test accuracy ([0-9.]+) after epoch 3", output, re.MULTILINE)[1]) > 0.9


def test_tune():
    output = run("digits_tune.py", "--epochs", "2")
    assert output.count("test accuracy") == 2 and "best lr 0.1" in output
