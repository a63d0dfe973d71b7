"""Each example runs, briefly, and does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))


def launch(ranks, script, *options):
    command = [HOROVODRUN, "-np", ranks, sys.executable, script, *options]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240)


def run(ranks, name, *options):
    result = launch(ranks, EXAMPLES / name, *options)
    assert result.returncode == 0, f"{result.args} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def number(pattern, output):
    found = re.search(pattern, output)
    assert found, f"no {pattern!r} in:\n{output}"
    return float(found[1])


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("pytorch_*.py")))
def test_help(name):
    # Without a launcher: whoever asks for help has not started a job.
    result = subprocess.run([sys.executable, EXAMPLES / name, "--help"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage:") and "horovodrun -np 4 python examples/" + name in result.stdout


@pytest.mark.long
def test_transformer_learns_the_same_on_any_number_of_ranks():
    losses = []
    for ranks in (1, 2):
        output = run(ranks, "pytorch_transformer.py", "--steps", 20, "--every", 10, "--batch-size", 8, "--length", 32)
        assert "bit-identical on all ranks" in output
        losses.append([float(loss) for loss in re.findall(r"loss ([0-9.]+)", output)])
        assert number(r"held-out text +([0-9.]+)", output) < number(r"before: ([0-9.]+)", output) - 1
    assert losses[0] == pytest.approx(losses[1], abs=5e-3)


def auc(ranks, *options):
    return number(r"AUC ([0-9.]+)", run(ranks, "pytorch_clicks.py", *options))


@pytest.mark.long
def test_clicks_are_learned_alike_on_any_number_of_ranks():
    """Two ranks differ from one by less than three seeds differ from one another."""
    short = ("--steps", 40, "--batch-size", 1024)
    alone, together = ([auc(ranks, "--seed", seed, *short) for seed in (1, 2, 3)] for ranks in (1, 2))
    assert together == pytest.approx(alone, abs=2e-3) and min(alone) > 0.62, (alone, together)
    assert abs(sum(together) - sum(alone)) / 3 <= max(alone) - min(alone), (alone, together)


def test_elastic_goes_on_after_an_interruption():
    output = run(2, "pytorch_elastic.py", "--epochs", 4, "--interrupt-at", 37)
    # 25 steps an epoch, a commit every 10 and after each epoch: step 30 is the last that was committed.
    assert "from step 0 (epoch 1) on 2 rank(s)" in output
    assert "from step 30 (epoch 2) on 2 rank(s)" in output
    assert output.count("from step") == 2
    assert "after 100 steps" in output and "bit-identical on all ranks" in output
    assert number(r"test accuracy +([0-9.]+) after", output) > 0.8


@pytest.mark.parametrize(
    "options", [(), ("--fp16-allreduce",), pytest.param(("--use-adasum",), marks=pytest.mark.long)]
)
def test_synthetic_benchmark(options):
    short = ("--batch-size", 2, "--image-size", 16, "--num-warmup-batches", 1, "--num-batches-per-iter", 1)
    output = run(2, "pytorch_synthetic_benchmark.py", *short, "--num-iters", 3, "--no-cuda", *options)
    assert len(re.findall(r"Iter #\d: [0-9.]+ img/sec per CPU", output)) == 3
    assert len(re.findall(r"Rank \d: [0-9.]+ \+-[0-9.]+ img/sec", output)) == 2
    mean = number(r"Img/sec per CPU: ([0-9.]+) \+-[0-9.]+", output)
    assert number(r"Total img/sec on 2 CPU\(s\): ([0-9.]+) \+-[0-9.]+", output) == pytest.approx(2 * mean, abs=0.2)


def test_ddp():
    output = run(2, "pytorch_ddp.py", "--epochs", 3)
    assert number(r"test accuracy +([0-9.]+) \(", output) > 0.5


@pytest.mark.long
def test_training_beside_gloo():
    result = launch(2, ROOT / "bench" / "torch_training.py", "--rounds", 2, "--steps", 2)
    assert result.returncode == 0, result.stdout + result.stderr
    for task in ("digits", "transformer"):
        assert re.search(rf"\| {task} \| 2 \|.*\| 0 \|$", result.stdout, re.MULTILINE), result.stdout
