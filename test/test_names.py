"""Names of Horovod's that other packages import, and the modules that are not there, which say what to do."""

import importlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from horovod.common import util
from horovod.runner import launch, mpi_run
from horovod.runner.common.util import codec, host_hash, secret, settings, timeout
from horovod.runner.util import threads

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")


def test_mxnet_is_not_there():
    """The error is the one that programs know from missing packages."""
    with pytest.raises(ImportError, match="retired.*NumPy 1.24.*horovod.torch"):
        importlib.import_module("horovod.mxnet")
    assert not util.extension_available("mxnet")


@pytest.mark.parametrize("front_end", ["torch", "tensorflow", "tensorflow.keras", "keras", "jax"])
def test_a_missing_framework_is_named_with_this_python(front_end, tmp_path):
    package = front_end.split(".")[0]
    program = (
        "import sys, importlib.util as u\n"
        "found = u.find_spec\n"
        f"u.find_spec = lambda name, *a: None if name == {package!r} else found(name, *a)\n"
        f"import horovod.{front_end}\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(launch.__file__).parents[2])}
    result = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    line = result.stderr.splitlines()[-1]
    says = f"ModuleNotFoundError: horovod.{package} needs {package}, and {sys.executable} (Python 3."
    assert line.startswith(says), line
    assert f"{sys.executable} -m pip install {package}" in line, line


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import gorovod", "ModuleNotFoundError: gorovod's Python package is called horovod"),
        ("import gorovod.torch as hvd", "ModuleNotFoundError: gorovod's Python package is called horovod"),
        (
            "import horovod as hvd; hvd.init()",
            "AttributeError: module 'horovod' has no attribute 'init': import a front end, for instance with `import "
            "horovod.torch as hvd`, and call hvd.init()",
        ),
        (
            "import horovod; horovod.torch.init()",
            "AttributeError: module 'horovod' has no attribute 'torch': import it first, with `import horovod.torch`",
        ),
        ("import horovod; assert not hasattr(horovod, 'size'); horovod._no", "AttributeError: module 'horovod'"),
        ("from horovod import common; common.nothing", "AttributeError: module 'horovod.common' has no attribute"),
    ],
)
def test_names_that_newcomers_try(program, says, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(Path(launch.__file__).parents[2])}
    result = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.stderr.splitlines()[-1].startswith(says), result.stderr


def test_spark_says_what_it_lacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match=r"horovod\.spark needs PySpark.*pip install 'gorovod\[spark\]'"):
        importlib.import_module("horovod.spark")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, f"Ray is not installed in {sys.executable}"),
        ("", "something else"),
        ("__version__ = '2.9.3'", "This is Ray 2.9.3"),
    ],
)
def test_ray_is_missing_or_old(found, says, tmp_path):
    if found is None and importlib.util.find_spec("ray.util") is not None:
        pytest.skip("Ray is installed")
    if found is not None:
        (tmp_path / "ray.py").write_text(found)
    path = os.pathsep.join([str(tmp_path), str(Path(launch.__file__).parents[2])])
    program = "import sys\ntry:\n    import horovod.ray\nexcept ImportError as e:\n    sys.exit(f'{e.name}: {e}')"
    env = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.stderr.startswith("ray: horovod.ray needs Ray 2.60 or later: pip install 'gorovod[ray]'.")
    assert says in result.stderr


def test_arguments_of_the_launcher(monkeypatch, capfd):
    words = ["-np", "2", "-H", "a:1,b:1", "--network-interface", "eth0", "--no-stall-check", "--cycle-time-ms", "3.5"]
    args = launch.parse_args([*words, "python", "train.py", "--lr", "1"])
    assert args.command == ["python", "train.py", "--lr", "1"]
    assert (args.num_proc, args.hosts, args.nics, args.cycle_time_ms) == (2, "a:1,b:1", {"eth0"}, 3.5)
    assert (args.use_gloo, args.use_mpi, args.verbose, args.no_stall_check) == (False, False, False, True)
    assert (args.hostfile, args.min_num_proc, args.ssh_port, args.autotune, args.fusion_threshold_mb) == (None,) * 5
    monkeypatch.setattr(sys, "argv", ["program", "-np", "1", "--mpi", "true"])
    assert launch.parse_args().use_mpi
    for wrong, code in ((["-np", "0", "true"], 2), (["-np", "2", "--no-such-option"], 2), (["--help"], 0)):
        with pytest.raises(SystemExit) as end:
            launch.parse_args(wrong)
        assert end.value.code == code
    out, err = capfd.readouterr()
    assert "--num-proc" in out and "at least 1 process is needed" in err and "--no-such-option" in err


def test_arguments_without_a_command(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("params: {cycle_time_ms: 20}\nautotune: {gaussian_process_noise: 1}\n")
    for words in (["--cycle-time-ms", "20", "--autotune-gaussian-process-noise", "1"], ["--config-file", str(file)]):
        args = launch.parse_args(["-np", "2", *words])
        numbers = (args.cycle_time_ms, args.autotune_gaussian_process_noise)
        assert args.command == [] and numbers == (20.0, 1.0) and [type(n) for n in numbers] == [float, float]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--fusion-threshold-mb", "-1"),
        ("--cycle-time-ms", "-1"),
        ("--cycle-time-ms", "nan"),
        ("--cache-capacity", "-1"),
        ("--autotune-warmup-samples", "-1"),
        ("--autotune-steps-per-sample", "-1"),
        ("--autotune-bayes-opt-max-samples", "-1"),
        ("--autotune-gaussian-process-noise", "1.5"),
        ("--stall-check-warning-time-seconds", "-1"),
        ("--stall-check-shutdown-time-seconds", "-1"),
        ("--num-nccl-streams", "-1"),
        ("--thread-affinity", "-1"),
        ("--gloo-timeout-seconds", "-1"),
    ],
)
def test_numbers_out_of_their_range(option, value):
    for command in ([], ["true"]):
        with pytest.raises(ValueError, match=f"^{option} (-1|1.5|NaN): a number .*from . to .* is needed$"):
            launch.parse_args(["-np", "2", option, value, *command])


FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "$VERSION"; exit 0; fi
printf '%s\\n' "$@" >"$TOLD"
exit "${CODE:-0}"
"""


@pytest.fixture
def mpirun(tmp_path, monkeypatch):
    """A stand-in for mpirun that notes its arguments. The launcher's own tests check which ones it passes."""
    (tmp_path / "mpirun").write_text(FAKE)
    (tmp_path / "mpirun").chmod(0o700)
    told = tmp_path / "told"
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TOLD": str(told),
        "VERSION": "mpirun (Open MPI) 4.1.4",
    }
    return env, told


def test_kinds_of_mpi(mpirun):
    env, _ = mpirun
    asked = (mpi_run.is_open_mpi, mpi_run.is_spectrum_mpi, mpi_run.is_mpich, mpi_run.is_intel_mpi)
    for i, version in enumerate(
        ("mpirun (Open MPI) 4.1.4", "IBM Spectrum MPI 10", "HYDRA build details", "Intel(R) MPI Library")
    ):
        of = {**env, "VERSION": version}
        assert mpi_run.mpi_available(of)
        assert [is_it(of) for is_it in asked] == [j == i for j in range(4)]
    assert not mpi_run.mpi_available({**env, "VERSION": "another"})
    assert not mpi_run.mpi_available({"PATH": "/nonexistent"})


def test_mpi_run(mpirun):
    env, told = mpirun
    of = settings.Settings(num_proc=2, hosts="localhost:2", extra_mpi_args="--more", verbose=0, ssh_port=7)
    mpi_run.mpi_run(of, {"lo"}, env, ["echo", "a b"])
    words = told.read_text().splitlines()
    assert words[-3:] == ["--more", "echo", "a b"]
    assert words[words.index("-np") + 1] == "2" and "-p 7" in words and "lo" in words
    mpi_run.mpi_run(of, None, env, "echo a; echo b")
    assert told.read_text().splitlines()[-2:] == ["-c", "echo a; echo b"]
    with pytest.raises(RuntimeError, match="mpirun failed with exit code 3"):
        mpi_run.mpi_run(of, None, {**env, "CODE": "3"}, ["true"])


def test_functions_in_threads(capsys):
    done = threading.Event()
    thread = threads.in_thread(done.set, name="own")
    assert done.wait(10) and thread.daemon and thread.name == "own"
    seen = []
    threads.in_thread(seen.append, (1,)).join(10)
    assert seen == [1]
    threads.in_thread(seen.index, (2,), silent=True).join(10)
    assert not capsys.readouterr().err
    with pytest.raises(ValueError, match="tuple"):
        threads.in_thread(print, 1)


def test_cached_functions():
    calls = []
    cached = util._cache(lambda *args, **kwargs: calls.append((args, kwargs)) or len(calls))
    assert [cached(1), cached(1), cached(1, b=2), cached(1, b=2), cached()] == [1, 1, 2, 2, 3]


def test_secrets_and_texts():
    key = secret.make_secret_key()
    assert len(key) == secret.SECRET_LENGTH_BYTES and key != secret.make_secret_key()
    digest = secret.compute_digest(key, b"text")
    assert secret.check_digest(key, b"text", digest)
    assert not secret.check_digest(key, b"other", digest) and not secret.check_digest(b"another", b"text", digest)
    assert codec.loads_base64(codec.dumps_base64({"a": [1]})) == {"a": [1]}
    assert isinstance(codec.dumps_base64(1), str) and isinstance(codec.dumps_base64(1, to_ascii=False), bytes)


def test_host_hash_is_that_of_the_host():
    program = "from horovod.runner.common.util.host_hash import host_hash; print(host_hash(), host_hash('salt'))"
    other = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert other.stdout.split() == [host_hash.host_hash(), host_hash.host_hash("salt")]
    assert len(set(other.stdout.split())) == 2


def test_time_limits(monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limit = timeout.Timeout(30, "{activity} takes more than {timeout} s.")
    assert limit.remaining() == 30 and not limit.timed_out()
    limit.check_time_out_for("nothing")
    now += 31
    assert limit.remaining() == 0 and limit.timed_out()
    with pytest.raises(timeout.TimeoutException, match="^a start takes more than 30 s"):
        limit.check_time_out_for("a start")


def test_front_ends_re_export_one_list():
    """Each takes the functions of the job from horovod.common._job, and none makes its own."""
    package = Path(util.__file__).resolve().parents[1]
    for front_end in ("torch", "tensorflow", "tensorflow/keras", "keras", "jax"):
        file = package / front_end / "__init__.py"
        text = file.read_text(encoding="utf-8")
        assert "from horovod.common._job import *" in text and "__all__ += _job.__all__" in text, file
    own = [f for f in package.rglob("*.py") if "HorovodBasics(" in f.read_text() and f.parent.name != "common"]
    assert own == []
