"""Runs gorovod on this machine's GPUs. `make test-gpu` calls it; nothing else needs it.

    python scripts/test_gpu.py [torch | jax]

It needs the checkout and `make build`'s output. Run it under a Python with pytest and with PyTorch for CUDA, JAX for
CUDA, or both. Figures go to build/gpu.txt as they are found, the output of each part goes to build/gpu. It fails if
there is no GPU, or if a part fails.
"""

import argparse
import importlib.util
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
JAX_TESTS = ROOT / "test" / "jax" / "test_jax_gpu.py"
JAX = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # ranks share the GPU's memory
LONGEST_S = 900
ASYNC = {"HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}
# From this version on, NCCL lets ranks share a GPU, if an environment variable asks for it.
SHARING_NCCL = 23000
SHARED = {"GOROVOD_GPU": "nccl", "NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_VISIBLE_DEVICES": "0"}


# Programs that print how many GPUs a framework sees, and the version code of the NCCL that the engine then uses.
ASKS = {
    "torch": """
import torch, horovod.torch as hvd
if torch.version.cuda is None:
    raise SystemExit(f"PyTorch {torch.__version__} is without CUDA")
if not torch.cuda.is_available():
    raise SystemExit("there is no GPU here (torch.cuda.is_available() is false)")
print(torch.cuda.device_count(), hvd.nccl_built())
""",
    "jax": """
import jax
try:
    count = len(jax.devices("cuda"))
except RuntimeError as e:
    raise SystemExit(f"JAX {jax.__version__} has no GPU: {e}")
import horovod.jax as hvd
print(count, hvd.nccl_built())
""",
}


def found(framework):
    """Return how many GPUs a framework sees and its NCCL's version code, or the reason why it sees none."""
    good, output = run(f"ask {framework}", [sys.executable, "-c", ASKS[framework]], JAX)
    lines = output.strip().splitlines() or [""]
    if not good:
        return None, f"{framework}: {lines[-1]}"
    count, version = lines[-1].split()
    return (int(count), int(version)), None


def parts(count, shares):
    """Return name, ranks and environment of each run of the tests. shares: NCCL lets ranks share a GPU."""
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
    """Run a part. Return whether it succeeded, and its output."""
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
    """Run tests, tell their results and figures, and return whether they passed."""
    good, output = run(name, [str(word) for word in command], environment)
    found = re.findall(r"\d+ (?:passed|failed|skipped|errors?)[^\n]*", output)
    good = good and (skips or bool(re.search(r"[1-9]\d* passed", output)))
    tell(f"{'ok' if good else 'FAILED'}: {name}: {found[-1] if found else 'no result'}")
    for figure in re.findall(r"FIGURE: (.*)", output):
        tell(f"  {figure}")
    return good


def torch_parts(count, version, tell):
    """Run PyTorch's parts, and return whether all have passed."""
    good, output = run("report", [ROOT / "build" / "gorovod", "doctor", "--gpu", "--python", sys.executable], {})
    passed = good and "WRONG" not in output
    tell(output.rstrip())
    shares = version >= SHARING_NCCL
    for name, ranks, environment in parts(count, shares):
        passed = job(name, TESTS, ranks, environment, tell) and passed
    jobs = [sys.executable, "-m", "pytest", "-q", "-rs", "-s", JOBS]
    environment = {} if count > 2 else {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    return tested("deaths", jobs, environment, tell, skips=not shares and count < 3) and passed


def jax_parts(count, version, tell):
    """Run JAX's parts, and return whether all have passed."""
    passed = True
    for name, ranks, environment in parts(count, version >= SHARING_NCCL):
        passed = job(f"JAX, {name}", JAX_TESTS, ranks, {**JAX, **environment}, tell) and passed
    return passed


def job(name, tests, ranks, environment, tell):
    """Run tests as one job with this number of ranks."""
    launch = [ROOT / "build" / "horovodrun", "-np", str(ranks), sys.executable, "-m", "pytest", "-q", tests]
    launch += ["-x"] if ranks > 1 else []  # the others would wait for the rank whose test has failed
    return tested(name, launch, environment, tell)


TORCH_AND_JAX = {"torch": torch_parts, "jax": jax_parts}


def main():
    parser = argparse.ArgumentParser(description="Run gorovod on this machine's GPUs.")
    parser.add_argument("frameworks", nargs="*", metavar="torch | jax", help="the default is both")
    wanted = parser.parse_args().frameworks or list(TORCH_AND_JAX)
    unknown = [name for name in wanted if name not in TORCH_AND_JAX]
    if unknown:
        parser.error(f"there are no tests of {unknown[0]}: name torch, jax or both")
    missing = [name for name in ("gorovod", "horovodrun", "libgorovod.so") if not (ROOT / "build" / name).exists()]
    if missing:
        sys.exit(f"test-gpu: build/{missing[0]} is missing: run `make build` first")
    if importlib.util.find_spec("pytest") is None:
        sys.exit(f"test-gpu: {sys.executable} has no pytest: set PYTHON to one with pytest and PyTorch or JAX for CUDA")
    LOGS.mkdir(parents=True, exist_ok=True)
    of = {framework: found(framework) for framework in wanted}
    if not any(here for here, _ in of.values()):
        reasons = "; ".join(why for _, why in of.values())
        sys.exit(f"test-gpu: nothing was tested with {sys.executable}: {reasons}")
    FIGURES.write_text("")

    def tell(text):
        print(text, flush=True)
        with FIGURES.open("a") as file:  # at once: the machine may be there for a few minutes only
            print(text, file=file)

    failed = False
    for framework, (here, why) in of.items():
        tell(why or f"{framework}: {here[0]} GPUs")
        failed = bool(here) and not TORCH_AND_JAX[framework](*here, tell) or failed
    print(f"These lines are in {FIGURES.relative_to(ROOT)}, and all output in {LOGS.relative_to(ROOT)}.")
    sys.exit(failed)


if __name__ == "__main__":
    main()
