"""The examples for Spark, as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spark"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], env=os.environ, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_digits_run():
    out = run("digits_run.py")
    assert "epoch 7: loss" in out
    assert float(out.split()[-1]) > 0.9


@pytest.mark.parametrize("framework", ["torch", "keras", "lightning"])
def test_estimators(framework):
    if framework == "lightning":
        pytest.importorskip("pytorch_lightning")
    out = run(f"{framework}_estimator.py")
    assert "wines that were not learnt" in out
    assert float(out.split()[-1]) > 0.85


@pytest.mark.smoke
def test_over_connect():
    """A program whose session is one of Spark Connect."""
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "over_connect.py"], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout
    assert "[(10, 3, 0, 3, 0, 1), (11, 3, 1, 3, 0, 1), (12, 3, 2, 3, 0, 1)]" in lines
    assert "[0]<stdout>:hello from 0\n[1]<stdout>:hello from 1\n[2, 2]\n" in lines
    assert "fit: (5, 64)" in lines
    assert "===== RuntimeError: Horovod detected that" in lines and "KeyError: 'batch 7'" in lines
    assert "Exit code: -9 (killed by SIGKILL)" in lines
    assert "===== ValueError: run_elastic needs a driver with a SparkContext" in lines
    assert "===== ValueError: over Spark Connect say num_proc" in lines
    assert "===== TimeoutException: Timed out waiting for 9 tasks to start, all at once: 8 s are over" in lines
