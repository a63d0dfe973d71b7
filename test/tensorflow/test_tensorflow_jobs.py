"""Whole jobs: what only shows in processes of its own, and the examples."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = ROOT / "examples"
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
LONGEST_S = 200
pytestmark = pytest.mark.longest(2 * LONGEST_S)


def start(ranks, program, *options, python=sys.executable, **env):
    """The exit status and the output of a job, or of one process without horovodrun if ``ranks`` is None.

    ranks: their number, after which there may be options of horovodrun. python: what runs the program.
    """
    command = [python, str(program), *map(str, options)]
    if ranks is not None:
        command = [HOROVODRUN, "-np", *str(ranks).split(), *command]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env}
    )
    try:
        output, _ = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
        pytest.fail(f"not finished after {LONGEST_S} s:\n{output[-5000:]}")
    return process.returncode, output


def run(ranks, program, *options, **how):
    status, output = start(ranks, program, *options, **how)
    assert status == 0, output[-5000:]
    return output


@pytest.mark.parametrize("mode", [pytest.param("session", marks=pytest.mark.long), "function", "threads"])
def test_opposite_orders(mode):
    """A kernel that held its thread while it waits would block the only thread."""
    assert run(2, PROGRAMS / "opposite_orders.py", MODE=mode).count("finished") == 2


@pytest.mark.parametrize("mode", [pytest.param("session", marks=pytest.mark.long), "function", "eager"])
def test_a_rank_that_dies(mode):
    status, output = start(2, PROGRAMS / "dies.py", MODE=mode)
    assert status != 0
    heard = re.search(r"heard after ([0-9.]+) s: (.*)", output)
    assert heard, output
    assert float(heard[1]) < 5
    assert re.search(r"rank 1 on host \S+ \(pid \d+\) was killed by signal 9", heard[2]), output


@pytest.mark.parametrize(
    "mode", ["tape", pytest.param("horovod.tensorflow.keras", marks=pytest.mark.long), "horovod.keras"]
)
def test_survivors_of_a_death_train_on(mode):
    """An elastic job goes on after the error of a collective that a dead rank has broken."""
    output = run("3 --min-np 2 -H localhost:3", PROGRAMS / "elastic.py", MODE=mode)
    assert re.search(r"worker 1 on host \S+ \(pid \d+\) was killed by signal 9", output), output
    for worker in (0, 2):
        assert f"worker {worker} from 1 in 2" in output, output
        assert f"worker {worker} done: 3 epochs" in output, output


@pytest.mark.parametrize("mode", ["tables", "model"])
def test_rows_of_tables_survive_a_death_and_move_to_a_newcomer(tmp_path, mode):
    options = "3 --min-np 2 --max-np 3 -H localhost:4"
    output = run(options, PROGRAMS / "elastic_tables.py", MODE=mode, GOROVOD_CHECKPOINT_DIR=str(tmp_path))
    for worker in (0, 2, 3):
        assert f"worker {worker} done: 16 of 16 steps" in output, output
    for worker in (0, 2):
        assert f"worker {worker} from 5 as " in output, output
    assert "in an elastic job sparse table 'users' belongs to a state: pass it to one (tables=" in output
    assert "in a function: " in output and "is not there yet: in an elastic job a state makes it" in output, output
    if mode == "tables":
        for what in ("'users'", "1000000000", "True"):
            assert f"refused: tables has {what}, which is no layer with a sparse table" in output, output
    kept = {"-".join(name.split("-")[:-1]) for name in os.listdir(tmp_path / "tables")}
    assert kept == {"users", "words"}, kept


@pytest.mark.long
def test_rows_survive_a_death_in_fit(tmp_path):
    options = "3 --min-np 2 -H localhost:3"
    output = run(options, PROGRAMS / "elastic_tables_fit.py", GOROVOD_CHECKPOINT_DIR=str(tmp_path))
    for worker in (0, 2):
        assert f"worker {worker} from 1 in 2" in output, output
        assert f"worker {worker} done: 3 epochs" in output, output


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_values_of_slices_are_checked_for_nans(mode):
    """tf.IndexedSlices travel by allgathers, but the program adds up what it gets; other allgathers mix nothing."""
    output = run(2, PROGRAMS / "nan_slices.py", MODE=mode, GOROVOD_NAN_CHECK="abort")
    assert output.count("gathered") == 2, output
    told = re.findall(r"stopped by .*rank 1 .*a NaN to allgather \S+ at index 2 of 4 \(float32\)", output)
    assert len(told) == 2, output


def test_compression_between_hosts():
    """Compression takes ranks that use TCP for ranks on different hosts."""
    program = Path(__file__).parent / "test_tensorflow_ops.py"
    code = f"import sys, pytest; sys.exit(pytest.main(['-q', '-x', '-k', 'test_compression', {str(program)!r}]))"
    output = run(2, "-c", code, GOROVOD_TRANSPORT="tcp")
    assert len(re.findall(r" [0-9]+ passed|:[0-9]+ passed", output)) == 2, output


def test_states_hear_of_changes_of_the_hosts_at_once(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost:1\n")
    script = tmp_path / "discover"
    script.write_text(f"#!/bin/sh\ncat '{hosts}'\n")
    script.chmod(0o700)
    output = run(f"1 --host-discovery-script {script}", PROGRAMS / "hears.py", hosts)
    assert output.count("done") == 2, output


def test_without_init():
    lines = [line for line in run(None, PROGRAMS / "no_init.py").splitlines() if "error" in line]
    assert len(lines) == 7
    assert all("Horovod has not been initialized; use hvd.init()." in line for line in lines), lines


def program_of(page, first_lines, folder):
    """The file with the program of a page of docs/ that begins so."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    program = folder / "train.py"
    program.write_text(first_lines + text.split("```python\n" + first_lines, 1)[1].split("```", 1)[0])
    return program


def test_first_program_of_the_page(tmp_path):
    """docs/tensorflow.md starts with a program that works."""
    output = run(2, program_of("tensorflow.md", "# train.py\nimport tensorflow as tf\n", tmp_path))
    assert len(re.findall(r"rank [01] of 2: loss", output)) == 2
    assert len(set(re.findall(r"weight (\S+)", output))) == 1, output


def test_program_of_sparse_tables(tmp_path):
    output = run(2, program_of("sparse_tables.md", "import tensorflow as tf\n", tmp_path))
    for rank in range(2):
        line = f"[{rank}]<stdout>:rank {rank}: loss below 0.2"
        assert line in output and line in (ROOT / "docs" / "sparse_tables.md").read_text(), output


@pytest.mark.parametrize("saver, loader", [("tensorflow", "torch"), ("torch", "tensorflow")])
def test_saves_of_tables_interchange_with_pytorch(tmp_path, saver, loader):
    named = ROOT / "build" / "python"  # a Python with PyTorch, from scripts/prepare.sh
    if not named.exists():
        pytest.skip("there is no build/python")
    pythons = {"torch": named.read_text().strip(), "tensorflow": sys.executable}
    for what, front_end, ranks in (("save", saver, 2), ("load", loader, 3)):
        output = run(ranks, PROGRAMS / "saves_tables.py", what, front_end, tmp_path, python=pythons[front_end])
        assert output.count(f" of {ranks}: {what} by {front_end}") == ranks, output


def test_digits_follow_one_curve(tmp_path):
    """Two ranks follow the curve of one process without horovodrun."""
    curves = []
    for ranks in (None, 2):
        log = tmp_path / f"{ranks}"
        output = run(ranks, EXAMPLES / "tensorflow_digits.py", "--epochs", 4, "--lr", 0.02, "--loss-log", log)
        assert "bit-identical" in output
        curves.append([json.loads(line)["loss"] for line in log.read_text().splitlines()])
    one, two = curves
    assert len(one) == len(two) == 100 and one[-1] < one[0] / 2
    for step, (a, b) in enumerate(zip(one, two)):
        assert abs(a - b) < 1e-3, f"step {step}: {a} on one rank, {b} on two"


def test_session_demo(tmp_path):
    """Horovod's first example: it learns, all ranks have one model, and rank 0 saves it."""
    output = run(2, EXAMPLES / "tensorflow_session.py", "--steps", 120, "--checkpoints", tmp_path)
    losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", output)]
    assert losses[-1] < losses[0] / 2, output
    assert "weights equal on 2 rank(s)" in output
    assert (tmp_path / "model.ckpt-120.index").exists()
    # It goes on from the checkpoint, which only rank 0 has read.
    output = run(2, EXAMPLES / "tensorflow_session.py", "--steps", 130, "--checkpoints", tmp_path)
    assert "weights equal on 2 rank(s)" in output
    assert (tmp_path / "model.ckpt-130.index").exists()


@pytest.mark.long
def test_clicks_are_learned_alike_on_two_ranks():
    found = []
    for ranks in (1, 2):
        output = run(ranks, EXAMPLES / "tensorflow_clicks.py", "--steps", 40, "--batch-size", 1024)
        found.append([float(x) for x in re.search(r"([0-9]+) users; .* AUC ([0-9.]+)", output).groups()])
    assert found[0] == pytest.approx(found[1], abs=2e-3) and found[0][1] > 0.62, found


def test_keras_digits_learn_the_same_on_two_ranks(tmp_path):
    curves = []
    for ranks in (None, 2):
        log = tmp_path / f"losses{ranks}"
        output = run(ranks, EXAMPLES / "keras_digits.py", "--epochs", 3, "--loss-log", log)
        assert float(re.search(r"test accuracy ([0-9.]+) ", output)[1]) > 0.5
        curves.append([json.loads(line)["loss"] for line in log.read_text().splitlines()])
    assert len(curves[0]) == 3
    assert curves[1] == pytest.approx(curves[0], rel=2e-2)


def test_synthetic_benchmark():
    options = ["--batch-size", 2, "--image-size", 16, "--channels", 4, "--num-iters", 2, "--num-warmup-batches", 1]
    output = run(2, EXAMPLES / "tensorflow_synthetic_benchmark.py", *options, "--fp16-allreduce")
    assert re.search(r"Total img/sec on 2 rank\(s\): [0-9.]+ \+-[0-9.]+", output), output


@pytest.mark.parametrize("table", ["api_tensorflow.txt", "api_keras.txt", "api_tensornet.txt"])
def test_names_and_signatures_are_those_of_others(table):
    """docs/api.md says so; scripts/compare_api.py --write writes its section anew."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import compare_api

    table = Path(__file__).parent / table
    command = [sys.executable, str(ROOT / "scripts" / "compare_api.py"), str(table)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", timeout=LONGEST_S)
    assert result.returncode == 0, [line for line in result.stdout.splitlines() if "✓" not in line]
    begin, end, expected = compare_api.section(table, result.stdout.rstrip("\n"))
    page = compare_api.PAGE.read_text(encoding="utf-8")
    there = page[page.index(begin) : page.index(end) + len(end)]
    assert there.split() == expected.split(), "docs/api.md is out of date"


def test_what_is_changed_in_tensorflow_and_keras_is_listed():
    from foreign import check_patches

    program = """
import keras, tensorflow as tf
import horovod.keras as hvd
hvd.init()
hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
"""
    any_order = "tensorflow.python.framework.auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS"
    patched = ["sys.excepthook", any_order]
    import keras

    if hasattr(keras, "ops"):  # Keras 3
        scaling = "keras.src.optimizers.loss_scale_optimizer.LossScaleOptimizer"
        methods = "apply", "stateless_apply", "check_finite", "save_own_variables", "load_own_variables"
        patched += ["keras.src.trainers.trainer.model_supports_jit", *(f"{scaling}.{name}" for name in methods)]
        patched += ["keras.src.api_export.REGISTERED_OBJS_TO_NAMES"]
    else:
        patched += ["keras.src.saving.object_registration._GLOBAL_CUSTOM_NAMES"]
    check_patches(program, patched)
