"""What it costs to watch a job: training steps with --metrics-port and --dashboard against steps without.

    python bench/watched.py [--np 2] [--rounds 30] [--block 0.4]

Three jobs of the same training (the network of examples/pytorch_digits.py) run at the same time and take turns, block
by block: two that nobody watches, and one whose metrics and page are on, with a reader that asks for the metrics every
two seconds. Only one of them computes at a time; in each round another one begins. A round gives two ratios of step
times: watched to unwatched, and unwatched to unwatched (A/A), which shows the machine's noise alone. The table has the
medians of the ratios, and the intervals in which 95 % of the medians of resampled rounds lie.

The number of rounds is fixed beforehand. Nothing else should run on the machine.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import paired

ROOT = Path(__file__).resolve().parent.parent
WATCHED = ["--metrics-port", "0", "--dashboard"]


def rank(port):
    """Trains in blocks: the conductor at port sends the number of steps, and gets the seconds that they took."""
    sys.path.insert(0, str(ROOT / "examples"))
    import pytorch_digits
    import torch
    import torch.nn.functional as F

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(42)
    images, labels = (t[:30] for t in pytorch_digits.load_digits()[0].tensors)
    model = pytorch_digits.Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    with socket.create_connection(("127.0.0.1", port)) as conn, conn.makefile("rw") as lines:
        print(hvd.rank(), file=lines, flush=True)
        for line in lines:
            hvd.barrier()
            start = time.perf_counter()
            for _ in range(int(line)):
                optimizer.zero_grad()
                F.cross_entropy(model(images), labels).backward()
                optimizer.step()
            hvd.barrier()
            print(time.perf_counter() - start, file=lines, flush=True)
    hvd.shutdown()


class Job:
    """A job whose ranks wait for blocks. options are horovodrun's."""

    def __init__(self, np, options):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60)
            command = [ROOT / "build" / "horovodrun", "-np", str(np), *options, sys.executable, __file__]
            env = dict(os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1")
            self.said = tempfile.TemporaryFile("w+")
            self.process = subprocess.Popen(
                [*command, "--rank", str(server.getsockname()[1])], env=env, stderr=self.said
            )
            self.ranks = {}
            try:
                for _ in range(np):
                    lines = server.accept()[0].makefile("rw")
                    self.ranks[int(lines.readline())] = lines
            except TimeoutError:
                self.end()
                raise SystemExit("a job does not start: " + self.text()) from None

    def text(self):
        self.said.seek(0)
        return self.said.read()

    def block(self, steps):
        """Let the job train a block, and return the seconds of a step."""
        for lines in self.ranks.values():
            print(steps, file=lines, flush=True)
        times = {rank: float(lines.readline()) for rank, lines in self.ranks.items()}
        return times[0] / steps

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def read(url, over):
    """Reads the metrics every two seconds, as an eager Prometheus does, and returns how often."""
    count = 0
    while not over.wait(2):
        with urllib.request.urlopen(url, timeout=10) as answer:
            count += b"horovod_collectives_total" in answer.read()
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=float, default=0.4, help="seconds of a turn")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank(options.rank)
    jobs = {"unwatched": Job(options.np, []), "again": Job(options.np, []), "watched": Job(options.np, WATCHED)}
    over, reads = threading.Event(), []
    url = re.search(r"metrics are at (\S+)", jobs["watched"].text())[1]
    reader = threading.Thread(target=lambda: reads.append(read(url, over)))
    reader.start()
    try:
        once = statistics.median(jobs["unwatched"].block(20) for _ in range(3))
        steps = max(1, round(options.block / once))
        for job in jobs.values():
            job.block(steps)
        times = {name: [] for name in jobs}
        for round_ in range(options.rounds):
            for name in paired.order(list(jobs), round_):
                times[name].append(jobs[name].block(steps))
    finally:
        over.set()
        reader.join()
        for job in jobs.values():
            job.end()
    print(
        f"{options.np} ranks, {options.rounds} rounds of {steps} steps each; the metrics were read {reads[0]} times;"
        f" a step takes {statistics.median(times['unwatched']) * 1e3:.3f} ms"
    )
    rows = {}
    for title, name in (("watched / unwatched", "watched"), ("unwatched / unwatched (A/A)", "again")):
        rows[title] = middle, low, high = paired.ratio(times[name], times["unwatched"])
        print(f"{title:28} {middle - 1:+.2%}  95 %: {low - 1:+.2%} to {high - 1:+.2%}")
    if options.json:
        Path(options.json).write_text(json.dumps({"times": times, "rows": rows, "load": os.getloadavg()}))


if __name__ == "__main__":
    main()
