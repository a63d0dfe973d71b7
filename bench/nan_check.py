"""What GOROVOD_NAN_CHECK costs: allreduces with the check against allreduces without.

    python bench/nan_check.py [--np 2] [--rounds 30] [--block 0.1] [--bytes 4096,1048576,67108864] [--before TREE]

Three jobs of ranks on this host run at the same time and take turns, block by block: two without the check, and one
with GOROVOD_NAN_CHECK=abort. Only one of them works at a time; in each round another one begins. A block is allreduces
in place of one tensor of zeros, which therefore stay zeros. A round gives two ratios of their times: checked to
unchecked, and unchecked to unchecked (A/A), which is what the machine's noise alone does. The table has their medians,
and the intervals in which 95 % of the medians of resampled rounds lie, and the ratios of the quickest blocks of all
rounds, which other processes have disturbed least. "read" is the time in which one core reads the
tensor (torch's sum), as a share of the allreduce.

With --before two more jobs run the build of another tree, without the check and with it: their ratios are to this
tree's unchecked job and to their own.

The number of rounds is fixed beforehand. Nothing else should run on the machine.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import paired

ROOT = Path(__file__).resolve().parent.parent


def rank(port):
    """Makes blocks as the conductor at port says, and tells it the seconds of each."""
    import torch

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    with socket.create_connection(("127.0.0.1", port)) as conn, conn.makefile("rw") as lines:
        print(hvd.rank(), file=lines, flush=True)
        tensors = {}
        for line in lines:
            dtype, size, count = line.split()
            key = dtype, size
            if key not in tensors:
                tensors.clear()
                kind = getattr(torch, dtype)
                tensors[key] = torch.zeros(int(size), dtype=torch.uint8).view(kind)
            x, name = tensors[key], f"{dtype}.{size}"
            hvd.barrier()
            start = time.perf_counter()
            for _ in range(int(count)):
                hvd.allreduce_(x, op=hvd.Sum, name=name)
            took = time.perf_counter() - start
            hvd.barrier()
            print(took, file=lines, flush=True)
    hvd.shutdown()


class Job:
    """A job of a tree's build whose ranks wait for blocks."""

    def __init__(self, np, check, tree=ROOT, options=()):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60)
            command = [tree / "build" / "horovodrun", "-np", str(np), *options, sys.executable, __file__]
            env = dict(
                os.environ,
                PYTHONPATH=str(tree / "python"),
                OMP_NUM_THREADS="1",
                GOROVOD_NAN_CHECK=check,
                GOROVOD_SUMMARY="0",
            )
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
                self.said.seek(0)
                raise SystemExit("a job does not start: " + self.said.read()) from None

    def block(self, dtype, size, count):
        """Seconds of an allreduce."""
        for lines in self.ranks.values():
            print(dtype, size, count, file=lines, flush=True)
        times = [float(lines.readline()) for lines in self.ranks.values()]
        return max(times) / count

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def reading(size):
    """Seconds in which one core reads so many bytes."""
    import torch

    torch.set_num_threads(1)
    x = torch.zeros(size // 8, dtype=torch.float64)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(max(1, (8 << 20) // size)):
            x.sum()
        times.append((time.perf_counter() - start) / max(1, (8 << 20) // size))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--block", type=float, default=0.1, help="seconds of a turn")
    parser.add_argument("--bytes", default="4096,1048576,67108864")
    parser.add_argument("--types", default="float32,bfloat16,float16,float64")
    parser.add_argument("--before", type=Path, help="a tree whose build is compared, too")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help="options of horovodrun, after --")
    o = parser.parse_args()
    if o.rank:
        return rank(o.rank)
    jobs = {
        "off": Job(o.np, "0", options=o.options),
        "again": Job(o.np, "0", options=o.options),
        "on": Job(o.np, "abort", options=o.options),
    }
    pairs = [("off / off (A/A)", "again", "off"), ("on / off", "on", "off")]
    if o.before:
        jobs["before off"] = Job(o.np, "0", o.before, o.options)
        jobs["before on"] = Job(o.np, "abort", o.before, o.options)
        pairs += [("off / off before", "off", "before off"), ("on / off, before", "before on", "before off")]
    rows = []
    try:
        for size in map(int, o.bytes.split(",")):
            for dtype in o.types.split(","):
                once = min(jobs["off"].block(dtype, size, 20) for _ in range(2))
                count = max(1, round(o.block / once))
                for job in jobs.values():
                    job.block(dtype, size, max(count, 30))  # the trials of a lane are over then
                times = {name: [] for name in jobs}
                for round_ in range(o.rounds):
                    for name in paired.order(list(jobs), round_):
                        times[name].append(jobs[name].block(dtype, size, count))
                off = statistics.median(times["off"])
                print(f"{size:>9} bytes of {dtype:8}  {off * 1e6:10.1f} µs  read {reading(size) / off:6.1%}", end="")
                for title, name, base in pairs:
                    middle, low, high = paired.ratio(times[name], times[base])
                    rows.append((size, dtype, title, middle, low, high))
                    print(f"  {title} {middle - 1:+.1%} [{low - 1:+.1%}, {high - 1:+.1%}]", end="")
                quick = {name: min(t) for name, t in times.items()}
                print(f"  quickest: {quick['off'] * 1e6:.1f} µs", end="")
                for title, name, base in pairs:
                    print(f"  {title} {quick[name] / quick[base] - 1:+.1%}", end="")
                print(flush=True)
    finally:
        for job in jobs.values():
            job.end()
    if o.json:
        Path(o.json).write_text(json.dumps({"rows": rows, "load": os.getloadavg()}))


if __name__ == "__main__":
    main()
