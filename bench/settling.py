"""How soon a new size reaches its final speed: the first allreduces of a size, against its settled time.

    python bench/settling.py [--jobs 8] [--np 2] [--sizes 65536,1048576,…]

Each job is a new horovodrun, in which every size is new once. Rank 0 times the first allreduces of a size one by one,
and then goes on until the time has settled. A figure is the median over the jobs. ``first ten`` and ``5 to 14`` are
means of those operations, ``worst`` is the largest of the medians of operations 5 to 14. All are divided by the settled
time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = 50


def rank(sizes, settle, output):
    """Times allreduces of each size. Rank 0 writes the times, in seconds and by size, to the file output."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    rows = {}
    for size in sizes:
        x = torch.ones(size // 4)
        hvd.barrier()
        count, times = FIRST + 60, []
        while len(times) < count:
            start = time.perf_counter()
            hvd.allreduce_(x, op=hvd.Average, name=f"x.{size}")
            times.append(time.perf_counter() - start)
            if len(times) == FIRST + 60:
                count += min(2000, int(settle / statistics.median(times)))
                count = hvd.broadcast(torch.tensor(count), 0, name=f"count.{size}").item()
        rows[size] = times
    if hvd.rank() == 0:
        Path(output).write_text(json.dumps(rows))
    hvd.shutdown()


def job(options):
    """Runs one job, and returns rank 0's times by size."""
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "times")
        command = [str(ROOT / "build" / "horovodrun"), "-np", str(options.np), sys.executable, __file__]
        command += ["--rank", output, "--sizes", options.sizes, "--settle", str(options.settle)]
        env = dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1")
        subprocess.run(command, env=env, check=True)
        return json.loads(Path(output).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--settle", type=float, default=0.5, help="seconds for each size (default: 0.5)")
    parser.add_argument("--sizes", default="4096,65536,400000,1048576,3000000,16777216")
    parser.add_argument("--first", action="store_true", help="print each of the first operations, too")
    parser.add_argument("--rank", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    if options.rank:
        return rank(sizes, options.settle, options.rank)
    jobs = [job(options) for _ in range(options.jobs)]
    print(f"{'bytes':>10} {'settled':>10} {'first ten':>10} {'5 to 14':>8} {'worst':>6} {'15 to 50':>8}")
    for size in sizes:
        series = [job[str(size)] for job in jobs]
        settled = statistics.median(statistics.median(times[FIRST:]) for times in series)
        relative = [[t / statistics.median(times[FIRST:]) for t in times[:FIRST]] for times in series]
        by_place = [statistics.median(row[i] for row in relative) for i in range(FIRST)]

        def over(a, b, rows=relative):
            return statistics.median(statistics.mean(row[a:b]) for row in rows)

        print(
            f"{size:>10} {settled * 1e6:>8.1f}us {over(0, 10):>10.2f} {over(4, 14):>8.2f}"
            f" {max(by_place[4:14]):>6.2f} {over(14, FIRST):>8.2f}"
        )
        if options.first:
            print("           " + " ".join(f"{t:.2f}" for t in by_place))


if __name__ == "__main__":
    main()
