"""How long two pods take from their start to the first allreduce of all four ranks, beside torchrun.

    python bench/pods_start.py [--rounds 12]

A pod is a network namespace of this machine, so this needs root; `make build` comes first. In each pod horovodrun, or
torchrun with its static rendezvous and gloo, starts two ranks. In each round every way starts twice, in an order that
rotates, and between two starts of one way the other one starts. So the table shows, too, how far two measurements of
one thing are apart. A warm-up round is not counted. The time includes the start of all processes and their imports of
PyTorch. The number of rounds is fixed beforehand. Nothing else should run on the machine.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import paired

ROOT = Path(__file__).resolve().parent.parent


class Pods:
    """The benchmark of test/hosts, which starts pods when it is told to, and cleans up when its input ends."""

    def __init__(self, folder):
        program = Path(folder) / "hosts.test"
        subprocess.run(["go", "test", "-c", "-o", program, "./test/hosts"], cwd=ROOT, check=True)
        self.process = subprocess.Popen(
            [program, "-test.v", "-test.run", "-", "-test.bench", "StartOfPods", "-test.benchtime", "1x"],
            cwd=ROOT / "test" / "hosts",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            start_new_session=True,  # Ctrl-C ends the input, and not the benchmark
        )

    def start(self, way):
        """Start pods, and return the seconds until their first allreduce."""
        print(way, file=self.process.stdin, flush=True)
        said = []
        for line in self.process.stdout:
            took = re.search(r"took ([0-9.]+) s", line)
            if took:
                return float(took[1])
            said.append(line)
        raise SystemExit("the pods do not start: " + "".join(said))

    def end(self):
        self.process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rounds", type=int, default=12, help="a multiple of 4 has each way begin as often (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        pods = Pods(folder)
        try:
            seconds = paired.measure(
                {
                    "horovodrun": lambda: pods.start("gorovod"),
                    "torchrun, gloo": lambda: pods.start("torchrun"),
                    "horovodrun, again": lambda: pods.start("gorovod"),
                    "torchrun, gloo, again": lambda: pods.start("torchrun"),
                },
                args.rounds,
            )
        finally:
            pods.end()
    paired.table("two pods by", seconds, "horovodrun")
    middle, low, high = paired.ratio(seconds["torchrun, gloo, again"], seconds["torchrun, gloo"])
    print(f"\ntorchrun, gloo, again to torchrun, gloo: {middle:.2f}, 95 %: {low:.2f} to {high:.2f}")
    print(f"load average before: {load[0]:.2f}")
    if args.json:
        args.json.write_text(json.dumps({"seconds": seconds, "load": load}))


if __name__ == "__main__":
    main()
