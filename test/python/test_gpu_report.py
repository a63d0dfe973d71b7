"""What ``gorovod doctor --gpu`` prints, with the Python of these tests."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
GOROVOD = Path(os.environ.get("HOROVODRUN", ROOT / "build" / "horovodrun")).with_name("gorovod")
SEGV = "(SIGSEGV: segmentation violation|signal: segmentation fault)"  # from Go, or from PyTorch's handler
TEST_GPU = ROOT / "scripts" / "test_gpu.py"
pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="starts a job of its own")


def report(**variables):
    done = subprocess.run(
        [GOROVOD, "doctor", "--gpu", "--python", sys.executable],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def library(folder, name, source):
    """Compile a library."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (folder / "source.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "source.c"], check=True)
    return folder / name


def libnccl(folder, version):
    """A library that tells a version of NCCL, and can do nothing."""
    return library(folder, "libnccl.so.2", f"int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}\n")


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA")
def test_pytorch_without_cuda():
    text = report()
    assert f"PyTorch: {torch.__version__}, without CUDA: install a build for CUDA" in text
    assert "CUDA's runtime in this process: none" in text
    assert "Tensors of GPUs: copied through host memory, because\n" in text


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA")
def test_an_unfit_library_is_named(tmp_path):
    file = libnccl(tmp_path, 21003)
    text = report(LD_LIBRARY_PATH=str(tmp_path))
    assert f"NCCL's library {file} is version 2.10.3: gorovod needs 2.14.0 or newer" in text


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA")
def test_a_library_that_ends_the_process_is_named(tmp_path):
    crashes = "int ncclGetVersion(int *v) { return *(volatile int *)8; }"
    exits = "void _exit(int); __attribute__((constructor)) void f(void) { _exit(3); }"
    for name, source, part, how, call in (
        ("libnccl.so.2", crashes, "NCCL", SEGV, "ncclGetVersion of {file}"),
        ("libcuda.so.1", exits, "CUDA", "exit status 3", "dlopen of {name} (LD_LIBRARY_PATH has {file})"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        file = library(folder, name, source)
        text = report(LD_LIBRARY_PATH=str(folder))
        ended = rf"WRONG: the part about {part} has ended \({how}\); its last call into a library was "
        assert re.search(ended + re.escape(call.format(name=name, file=file)), text), text
        order = ("PyTorch: ", "CUDA's driver: ", "NCCL: ", "Tensors of GPUs: ", "Trial: none")
        assert sorted(order, key=text.index) == list(order), text


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch has CUDA")
def test_the_variable_counts(tmp_path):
    assert "Tensors of GPUs: refused, because GOROVOD_GPU=off asks for that" in report(GOROVOD_GPU="off")
    assert "WRONG: no job can start: GOROVOD_GPU=of: auto, nccl, staged or off" in report(GOROVOD_GPU="of")


def test_the_trial_finds_nothing_wrong_in_host_memory():
    """The trial's own program, where there is no GPU: its parts about streams are left out."""
    program = (
        "import torch\nfrom horovod.torch import _gpu_trial\nprint(*_gpu_trial.lines(torch.device('cpu')), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0 and "WRONG" not in done.stdout, done.stdout
    assert "right bits: 9 operations" in done.stdout and "allreduce of 4 bytes takes: gorovod" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said():
    assert "Trial: none, since PyTorch sees no GPU" in report()


@pytest.mark.skipif(not TEST_GPU.exists(), reason="this is no checkout")
@pytest.mark.parametrize(
    "word, code, says", [("--help", 0, "torch | jax"), ("tensorflow", 2, "no tests of tensorflow")]
)
def test_make_test_gpu_says_what_it_takes(word, code, says):
    done = subprocess.run([sys.executable, TEST_GPU, word], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == code and says in done.stdout, done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.skipif(not (TEST_GPU.exists() and (ROOT / "build" / "gorovod").exists()), reason="nothing is built here")
def test_make_test_gpu_says_that_there_is_none():
    done = subprocess.run([sys.executable, TEST_GPU], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 1 and "nothing was tested" in done.stdout, done.stdout


@pytest.mark.parametrize("answer", ["nccl_built()", "cuda_built()"])
def test_ctrl_c_ends_a_question_about_a_library_that_hangs(tmp_path, answer):
    library(tmp_path, "libcuda.so.1", "int cuDriverGetVersion(int *v) { *v = 12080; return 0; }\n")
    hangs = '#include <unistd.h>\nint ncclGetVersion(int *v) { write(1, "asked\\n", 6); for (;;) pause(); }\n'
    library(tmp_path, "libnccl.so.2", hangs)
    heeds = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job of a shell may not
    program = heeds + f"import horovod.torch as hvd\nprint(hvd.{answer})"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "python")}
    asks = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said = asks.stdout.readline()
    assert said == "asked\n", said + asks.communicate()[1]
    asks.send_signal(signal.SIGINT)
    output, error = asks.communicate(timeout=60)
    assert "KeyboardInterrupt" in error and output == "", output + error


def test_a_library_that_hangs_is_named(tmp_path):
    library(tmp_path, "libcuda.so.1", "int cuDriverGetVersion(int *v) { *v = 12080; return 0; }\n")
    library(tmp_path, "libnccl.so.2", "#include <unistd.h>\nint ncclGetVersion(int *v) { for (;;) pause(); }\n")
    done = subprocess.run(
        [sys.executable, "-c", "import horovod.torch as hvd\nprint(hvd.nccl_built(), hvd.cuda_built())"],
        env={
            **os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "python"),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": "3",
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "0 False\n", done
    assert done.stderr.count(f"ncclGetVersion of {tmp_path}/libnccl.so.2 has not returned for 3s") == 1, done
