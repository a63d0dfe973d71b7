"""Whole jobs with JAX: the example, and programs whose ranks die or disagree."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))


def curve(launch, log):
    """The loss of each step. Checks that the accuracy shows that something was learnt."""
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


def job(program, *options, **environment):
    """The exit code and the output of two ranks that run ``program``, a text."""
    head = "import os, signal, jax, numpy as np, horovod.jax as hvd\nhvd.init()\n"
    command = [HOROVODRUN, "-np", "2", *options, sys.executable, "-c", head + textwrap.dedent(program)]
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
    )
    return result.returncode, result.stdout


def test_a_rank_that_dies_in_the_middle_of_a_program():
    code, output = job("""
        from jax.experimental import io_callback

        def die(i):
            if i == 500 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return i

        @jax.jit
        def program(x):
            def body(x, i):
                i = io_callback(die, i, i)
                sums = [hvd.allreduce(x + i * k, name=f"sum.{k}") for k in range(3)]
                return x + sum(sums), None
            return jax.lax.scan(body, x, np.arange(1000))[0]

        try:
            jax.block_until_ready(program(np.zeros(5000, "float32")))
        except jax.errors.JaxRuntimeError as e:
            assert "HorovodInternalError" in str(e) and "SIGKILL" in str(e), e
            assert "rank 1" in str(e), e
            print("survivor knows")
    """)
    assert code != 0 and "survivor knows" in output, output


SECOND = {
    "compiled": "jax.jit(lambda x: hvd.allreduce(x, name='g'))",
    "at once": "lambda x: hvd.allreduce(x, name='g')",
}


@pytest.mark.parametrize("second", SECOND)
def test_two_functions_in_opposite_orders(second):
    """Ranks that wait for one another, in programs that the main thread runs, end with an error that names them."""
    code, output = job(
        f"""
        f, g = jax.jit(lambda x: [hvd.allreduce(x, name="f"), hvd.allreduce(2 * x, name="h")]), {SECOND[second]}
        for function in (f, g) if hvd.rank() == 0 else (g, f):
            jax.block_until_ready(function(np.float32(1)))
        """,
        HOROVOD_STALL_CHECK_TIME_SECONDS="1",
    )
    assert code == 1, output
    assert "root cause: rank" in output, output
    for rank, name in enumerate("fg"):
        assert re.search(rf"deadlock: .*rank {rank} on host \S+ \(pid \d+\) waits for {name}", output), output


@pytest.mark.parametrize("length", [1, 100_000])
def test_a_job_that_loses_a_rank_goes_on_with_the_same_program(length):
    code, output = job(
        """
        ones = np.ones(int(os.environ["LENGTH"]), "float32")
        program = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="sum"))

        @hvd.elastic.run
        def train(state):
            while state.step < 20:
                if state.step == 10 and hvd.size() == 2 and hvd.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                state.total = program(state.ones)
                np.testing.assert_allclose(state.total, np.full(len(state.ones), hvd.size()))
                state.step += 1
                state.commit()

        train(hvd.elastic.JaxState(ones=ones, total=0, step=0))
        print("done with", hvd.size())
        """,
        "--min-np",
        "1",
        LENGTH=str(length),
    )
    assert code == 0 and "done with 1" in output, output


def test_callbacks_in_place_of_operations():
    code, output = job(
        """
        def loss(x):
            return (hvd.allreduce(x, op=hvd.Sum) * (hvd.rank() + 1)).sum() + hvd.allgather(x).sum()

        program = jax.jit(lambda x: (hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 1)))
        assert "gorovod_collective" not in program.lower(np.ones(2, "float32")).as_text()
        mean, rows, root = program(np.float32([hvd.rank()] * 2))
        np.testing.assert_allclose(np.concatenate([mean, rows, root]), [0.5] * 2 + [0, 0, 1, 1] + [1] * 2)
        gradient = jax.jit(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Sum).sum() * (hvd.rank() + 1)))
        np.testing.assert_allclose(gradient(np.ones(2, "float32")), [3, 3])
        """,
        GOROVOD_JAX_CALLBACKS="1",
    )
    assert code == 0, output


def test_a_process_with_two_devices():
    """Each device's part is reduced with that of the other ranks. Results are on the device of what they come from."""
    code, output = job(
        """
        from jax.sharding import PartitionSpec, AxisType

        mesh = jax.make_mesh((2,), ("devices",), axis_types=(AxisType.Auto,))
        where = PartitionSpec("devices")
        reduce = jax.shard_map(lambda x: hvd.allreduce(x, op=hvd.Sum), mesh=mesh, in_specs=where, out_specs=where)
        program = jax.jit(reduce)
        for step in range(20):
            x = np.arange(4, dtype="float32") * (hvd.rank() + 1) + step
            np.testing.assert_allclose(program(x), np.arange(4) * 3 + 2 * step)
        x = jax.device_put(np.ones(3, "float32"), jax.devices()[1])
        for result in (hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0)):
            assert result.devices() == x.devices(), result.devices()
        with jax.default_device(jax.devices()[1]):
            x = jax.numpy.ones(3)
        assert (hvd.allreduce(x) + jax.device_put(x, jax.devices()[0])).devices() == {jax.devices()[0]}
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert code == 0, output


def test_a_jax_without_the_interface_is_told_so(tmp_path):
    """A copy of the engine that has no handlers beside it."""
    (tmp_path / "libgorovod.so").symlink_to(ROOT / "build" / "libgorovod.so")
    code, output = job(
        "print(jax.jit(hvd.allreduce)(np.float32(hvd.rank())))", GOROVOD_LIBRARY=str(tmp_path / "libgorovod.so")
    )
    assert code == 0 and "0.5" in output, output
    assert "RuntimeWarning" in output and "libgorovod_jax.so is not beside" in output, output


def test_what_is_changed_outside_of_the_package_is_listed():
    from foreign import check_patches

    program = "import jax, horovod.jax as hvd\nhvd.init()\njax.jit(hvd.allreduce)(1.0)"
    check_patches(program, ["sys.excepthook"])


@pytest.mark.parametrize("end", ["", "hvd.shutdown()"])
def test_a_program_that_still_runs_at_the_end(end):
    """A rank that ends, or leaves, while its last program still runs takes part in that program's collectives."""
    code, output = job(
        f"""
        import time

        @jax.jit
        def step(x):
            return hvd.allreduce(jax.lax.fori_loop(0, 3000, lambda _, y: y @ x / 64, x), op=hvd.Sum)

        if hvd.rank() == 0:
            time.sleep(1)  # the other rank has reached its end by then
        x = step(jax.numpy.ones((64, 64), "float32"))
        if hvd.rank() == 0:
            print("sum", float(x[0, 0]))
        {end}
        """
    )
    assert code == 0 and "sum 2.0" in output, output
