"""What a call from Python costs: through the compiled extension and without it, by turns in one job.

    python3 bench/python_calls.py [--np 2,4] [--rounds 20] [--calls 2000] [--frameworks torch,tensorflow,jax]

On each number of ranks it first runs gorovod bench with Go's own figures and those of Open MPI, if its mpirun is here.
Then it starts a job for each framework that is here: PyTorch in this Python, the others in what make build has made.

In a job each round measures every row on both ways, and the one without the extension twice (A/A), all ranks in step.
Rank 0 prints, for each row, the medians of the rounds and the least in microseconds a call: wall time, and the
processor time of this rank, all its threads. Ratios are of one round; see paired.py. On busy cores the processor time
and the least say more.
"""

import argparse
import gc
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from paired import cells, order

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = ("torch", "tensorflow", "jax")
WAYS = {"compiled": True, "without": False, "without again": False}
MANY = 1000  # tensors in one step
NAMES = [f"bench.{i}" for i in range(MANY)]


def clocks():
    return time.perf_counter(), time.process_time()


def since(start):
    return tuple(now - then for now, then in zip(clocks(), start))


def one_at_a_time(call):
    """A row: the call, over and over."""

    def measure(calls):
        start = clocks()
        for _ in range(calls):
            call()
        return since(start), calls

    return measure


def torch_rows():
    import torch

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    floats = [torch.zeros(1) for _ in range(MANY)]
    x, rows, split = floats[0], torch.zeros(hvd.size()), [1] * hvd.size()
    allreduce, synchronize, op = hvd.allreduce_async_, hvd.synchronize, hvd.Sum

    def one_by_one(calls):
        start = clocks()
        for _ in range(max(calls // MANY, 1)):
            for handle in [allreduce(x, op=op, name=name) for x, name in zip(floats, NAMES)]:
                synchronize(handle)
        return since(start), max(calls // MANY, 1) * MANY

    def submitting(calls):
        """The submitting calls alone."""
        spent = (0, 0)
        for _ in range(max(calls // MANY, 1)):
            start = clocks()
            handles = [allreduce(x, op=op, name=name) for x, name in zip(floats, NAMES)]
            spent = tuple(map(sum, zip(spent, since(start))))
            for handle in handles:
                synchronize(handle)
        return spent, max(calls // MANY, 1) * MANY

    def grouped(calls):
        start = clocks()
        for _ in range(max(calls // MANY, 1)):
            hvd.grouped_allreduce_(floats, op=op, name="bench")
        return since(start), max(calls // MANY, 1) * MANY

    return f"torch {torch.__version__}", {
        "4 B in place": one_at_a_time(lambda: hvd.allreduce_(x, op=op, name="bench")),
        "1,000 floats, each": one_by_one,
        "submitting one": submitting,
        "1,000 floats in a group, each": grouped,
        "allgather of 4 B": one_at_a_time(lambda: hvd.allgather(x, name="bench")),
        "alltoall of 4 B to each, with splits": one_at_a_time(lambda: hvd.alltoall(rows, split, name="bench")),
        "reducescatter of 4 B for each": one_at_a_time(lambda: hvd.reducescatter(rows, op=op, name="bench")),
    }


def tensorflow_rows():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    x = tf.zeros([1])
    return f"tensorflow {tf.__version__}", {
        "allreduce of 4 B": one_at_a_time(lambda: hvd.allreduce(x, op=hvd.Sum, name="bench")),
        "broadcast of 4 B": one_at_a_time(lambda: hvd.broadcast(x, 0, name="bench")),
    }


def jax_rows():
    import jax

    import horovod.jax as hvd

    hvd.init()
    x = jax.numpy.zeros(1)
    return f"jax {jax.__version__}", {
        "allreduce of 4 B": one_at_a_time(lambda: hvd.allreduce(x, op=hvd.Sum, name="bench")),
        "broadcast of 4 B": one_at_a_time(lambda: hvd.broadcast(x, 0, name="bench")),
    }


def in_job(args):
    """Measure the rows of a framework on this rank; rank 0 prints them."""
    os.environ.setdefault("HOROVOD_CACHE_CAPACITY", "4096")  # for all names
    framework, rows = {"torch": torch_rows, "tensorflow": tensorflow_rows, "jax": jax_rows}[args.frameworks]()
    from horovod.common import _extension

    native = _extension.load()
    if native is None:
        sys.exit("there is no extension, so there is nothing to compare")
    hvd = sys.modules[f"horovod.{args.frameworks}"]
    step = rows[next(iter(rows))]  # its last call ends on all ranks at about the same time
    gc.disable()
    times = {(row, way): [] for row in rows for way in WAYS}
    for round_ in range(args.rounds + 1):
        for way in order(list(WAYS), round_):
            native.enable(WAYS[way])
            for row, measure in rows.items():
                step(1)
                spent, calls = measure(args.calls)
                if round_:  # the first one warms up
                    times[row, way].append([1e6 * seconds / calls for seconds in spent])
    if hvd.rank() == 0:
        print(f"\n{hvd.size()} ranks, {args.rounds} rounds of {args.calls} calls, {framework}")
        print("| | wall, µs: compiled | without | ratio | A/A | processor, µs: compiled | without | ratio | A/A |")
        print("|---|---|---|---|---|---|---|---|---|")
        for row in rows:
            by_clock = [cells(*([spent[clock] for spent in times[row, way]] for way in WAYS)) for clock in range(2)]
            print(f"| {row} | {' | '.join(by_clock[0] + by_clock[1])} |")
    hvd.shutdown()


def python_of(framework):
    """The Python that has the framework; None if none is here."""
    if framework == "torch":
        return sys.executable
    if framework == "jax":
        found = ROOT / "build" / "jax" / "bin" / "python"
    else:
        listed = ROOT / "build" / "tensorflows"
        found = Path(listed.read_text().split()[0]) if listed.is_file() else listed
    return str(found) if found.is_file() else None


def all_jobs(args):
    """Start all jobs, one after the other. Returns the greatest exit status."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "GOROVOD_SUMMARY": "0"}
    worst = 0
    for np in args.np.split(","):
        peers = "go,openmpi" if shutil.which("mpirun") else "go"
        beside = [
            str(ROOT / "build" / "gorovod"), "bench", "-n", np, "--quick", "--time", str(args.time), "--max-size", "1",
            "--peers", peers,
        ]  # fmt: skip
        print(f"\n== {np} ranks: Go, and Open MPI beside it", flush=True)
        worst = max(worst, abs(subprocess.run(beside, env=environment, check=False).returncode))
        for framework in args.frameworks.split(","):
            python = python_of(framework)
            if python is None:
                print(f"\n{framework} is not here: make test-{framework} installs it")
                continue
            job = [
                str(ROOT / "build" / "horovodrun"), "-np", np, python, __file__, "--frameworks", framework,
                "--rounds", str(args.rounds), "--calls", str(args.calls),
            ]  # fmt: skip
            worst = max(worst, abs(subprocess.run(job, env=environment, check=False).returncode))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", default="2,4", help="numbers of ranks")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000, help="in each round, on each way")
    parser.add_argument("--time", type=int, default=30, help="seconds for each run of gorovod bench")
    args = parser.parse_args()
    if "HOROVOD_RANK" in os.environ:
        in_job(args)
    else:
        sys.exit(all_jobs(args))


if __name__ == "__main__":
    main()
