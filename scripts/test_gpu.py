"""Runs gorovod on this machine's GPUs: what `make test-gpu` does. Nothing of it is needed elsewhere.

    python scripts/test_gpu.py

It needs the checkout, `make build`'s output, and runs under a Python with PyTorch for CUDA and pytest. Figures go to
build/gpu.txt, the output of each part to build/gpu. It ends with an error if there is no GPU, or if a part fails.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "gpu"
FIGURES = ROOT / "build" / "gpu.txt"
TESTS = ROOT / "test" / "python" / "test_torch_gpu.py"
JOBS = ROOT / "test" / "python" / "test_torch_gpu_jobs.py"
LONGEST_S = 900
ASYNC = {"HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}
# NCCL from this version on lets ranks share a GPU, if that is set.
SHARING_NCCL = 23000
SHARED = {"GOROVOD_GPU": "nccl", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}


def gpus():
    """How many GPUs PyTorch sees; ends the program if it is none."""
    missing = [name for name in ("gorovod", "horovodrun", "libgorovod.so") if not (ROOT / "build" / name).exists()]
    if missing:
        sys.exit(f"test-gpu: build/{missing[0]} is missing: run `make build` first")
    try:
        import pytest  # noqa: F401
        import torch
    except ImportError as e:
        sys.exit(f"test-gpu: {sys.executable} has no {e.name}: set PYTHON to one with PyTorch for CUDA and pytest")
    if torch.version.cuda is None:
        sys.exit(f"test-gpu: PyTorch {torch.__version__} of {sys.executable} is without CUDA: nothing was tested")
    if not torch.cuda.is_available():
        sys.exit("test-gpu: there is no GPU here (torch.cuda.is_available() is false): nothing was tested")
    return torch.cuda.device_count()


def nccl():
    """The version code of the NCCL that the engine takes; 0 if there is none."""
    asks = "import horovod.torch as hvd; print(hvd.nccl_built())"
    return int(run("nccl", [sys.executable, "-c", asks], {})[1].split()[-1])


def parts(count, shares):
    """Name, ranks and environment of each run of the tests; shares: NCCL lets ranks share a GPU."""
    yield "nccl, one rank", 1, {"GOROVOD_GPU": "nccl"}
    yield "nccl, one rank, asynchronous", 1, {"GOROVOD_GPU": "nccl", **ASYNC}
    yield "staged, one rank", 1, {"GOROVOD_GPU": "staged"}
    # Two ranks on one device: NCCL refuses that by default, so the engine copies.
    yield "the default, two ranks share a GPU", 2, {"GOROVOD_GPU": "auto", "CUDA_VISIBLE_DEVICES": "0"}
    if shares:
        yield "nccl, two ranks share a GPU", 2, SHARED
        yield "nccl, four ranks share a GPU", 4, SHARED
        yield "nccl, two ranks share a GPU, asynchronous", 2, {**SHARED, **ASYNC}
        yield "nccl tried, two ranks share a GPU", 2, {**SHARED, "GOROVOD_GPU": "auto"}
    if count > 1:
        ranks = min(count, 8)
        yield f"nccl, {ranks} ranks", ranks, {"GOROVOD_GPU": "nccl"}
        yield f"nccl, {ranks} ranks, asynchronous", ranks, {"GOROVOD_GPU": "nccl", **ASYNC}
        yield f"the default, {ranks} ranks", ranks, {}


def run(name, command, environment):
    """Run a part, and return whether it has ended well, and its output."""
    try:
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}, cwd=TESTS.parent,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST_S,
        )  # fmt: skip
        good, output = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as e:
        good, output = False, f"{e}\n{(e.stdout or b'').decode(errors='replace')}"
    (LOGS / f"{re.sub('[^a-z0-9]+', '-', name)}.log").write_text(output)
    return good, output


def tested(name, command, environment, tell, skips=False):
    """Run tests, tell how they ended and the figures that they found, and return whether they passed."""
    good, output = run(name, [str(word) for word in command], environment)
    found = re.findall(r"\d+ (?:passed|failed|skipped|errors?)[^\n]*", output)
    good = good and (skips or bool(re.search(r"[1-9]\d* passed", output)))
    tell(f"{'ok' if good else 'FAILED'}: {name}: {found[-1] if found else 'no result'}")
    for figure in re.findall(r"FIGURE: (.*)", output):
        tell(f"  {figure}")
    return good


def main():
    count = gpus()
    LOGS.mkdir(parents=True, exist_ok=True)
    told = [f"{count} GPUs"]

    def tell(text):
        told.append(text)
        print(text, flush=True)

    good, output = run("report", [ROOT / "build" / "gorovod", "doctor", "--gpu", "--python", sys.executable], {})
    failed = not good or "WRONG" in output
    tell(output.rstrip())
    shares = nccl() >= SHARING_NCCL
    for name, ranks, environment in parts(count, shares):
        launch = [ROOT / "build" / "horovodrun", "-np", str(ranks), sys.executable, "-m", "pytest", "-q", TESTS]
        launch += ["-x"] if ranks > 1 else []  # the others would wait for the rank whose test has failed
        failed = not tested(name, launch, environment, tell) or failed
    jobs = [sys.executable, "-m", "pytest", "-q", "-rs", "-s", JOBS]
    environment = {} if count > 2 else {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    failed = not tested("deaths", jobs, environment, tell, skips=not shares and count < 3) or failed
    FIGURES.write_text("\n".join(told) + "\n")
    print(f"These lines are in {FIGURES.relative_to(ROOT)}, and all output in {LOGS.relative_to(ROOT)}.")
    sys.exit(failed)


if __name__ == "__main__":
    main()
