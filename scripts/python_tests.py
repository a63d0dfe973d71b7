"""Runs the Python tests: each file on 1, 2, 3 and 4 ranks under horovodrun.

    python scripts/python_tests.py [--ranks N,…] [--together] [--smoke | --long] [FILE…]

The ranks run under the Python that runs this script. Files that start horovodrun themselves
run once, two at a time, beside the others, because they wait more than they compute. Every rank's output
goes to build/test-logs. After a failure the script shows the output that explains it.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOROVODRUN = os.environ.get("HOROVODRUN", str(ROOT / "build" / "horovodrun"))
LOGS = ROOT / "build" / "test-logs"
# Tests that start horovodrun themselves, kill ranks, and so on.
ALONE = {
    "test_address_space.py",
    "test_api.py",
    "test_demo.py",
    "test_docs.py",
    "test_docstrings.py",
    "test_ecosystem.py",
    "test_examples.py",
    "test_elastic_jobs.py",
    "test_faults.py",
    "test_gpu_report.py",
    "test_imports.py",
    "test_jax_docstrings.py",
    "test_jax_jobs.py",
    "test_loss_curve.py",
    "test_names.py",
    "test_paired.py",
    "test_patches.py",
    "test_run.py",
    "test_startup.py",
    "test_tensorflow_docstrings.py",
    "test_tensorflow_jobs.py",
    "test_torch_distributed_jobs.py",
    "test_torch_distributed_left.py",
    "test_torch_nccl.py",
    "test_upstream.py",
}
# Tests of features that do not depend on the number of ranks. They run on at most two.
OF_TWO = {
    "test_fork.py",
    "test_keras_on_torch.py",
    "test_timeline.py",
    "test_torch_compile.py",
    "test_torch_compile_distributed.py",
    "test_torch_gpu.py",
    "test_torch_staging.py",
}
# Further runs, for the other transports: (ranks, environment). Names with a dash are options of the launcher.
OVER_TCP = (3, {"GOROVOD_TRANSPORT": "tcp"})
# Two names of this host, so that the ranks act as if they were on two hosts.
ON_TWO_HOSTS = (4, {"-H": "localhost:2,127.0.0.1:2"})
OUTCOMES = ("passed", "failed", "skipped")
SELECT = ["-m", "not long"]  # options of pytest


class Totals(dict):
    """How many tests had which outcome."""

    def __init__(self, log=""):
        found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", last_line(log))
        super().__init__(dict.fromkeys(OUTCOMES, 0))
        for count, outcome in found:
            self["failed" if outcome.startswith("error") else outcome] += int(count)

    def add(self, other):
        for outcome in OUTCOMES:
            self[outcome] += other[outcome]

    def __str__(self):
        return ", ".join(f"{n} {outcome}" for outcome, n in self.items() if n or outcome != "skipped")


def last_line(log):
    """Return pytest's last line, such as "3 passed in 0.1s"; empty if pytest did not print it."""
    lines = [line for line in log.splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", line)]
    return lines[-1] if lines else ""


def pytest(files):
    options = ["-rs", "--durations=12", "--durations-min=1", "-o", "faulthandler_timeout=100", *SELECT]
    return [sys.executable, "-m", "pytest", "-q", *options, *map(str, files)]


_running = set()


def run(command, log, env, timeout):
    """Run a command with its output to the file log. Return whether it succeeded within timeout seconds."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        _running.add(process)
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            out.write(f"\nnot finished after {timeout} s\n".encode())
            process.send_signal(signal.SIGTERM)  # horovodrun ends its ranks
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            return False
        finally:
            _running.discard(process)


def test_alone(file, timeout):
    log = LOGS / f"alone-{file.stem}.log"
    ok = run(pytest([file]), log, os.environ, timeout)
    return ok, [log], log


def test_ranks(files, ranks, extra, timeout):
    folder = LOGS / "-".join([f"np{ranks}", *extra.values(), files[0].stem if len(files) == 1 else "together"])
    folder.mkdir()
    # -x: once a test has failed on a rank, this rank is out of step with the others.
    each = ["bash", "-c", 'exec "$@" >"$0/rank.$HOROVOD_RANK" 2>&1', str(folder), *pytest(files), "-x"]
    launcher = folder / "horovodrun"
    options = [word for name, value in extra.items() if name.startswith("-") for word in (name, value)]
    env = {name: value for name, value in extra.items() if not name.startswith("-")}
    ok = run([HOROVODRUN, "-np", str(ranks), *options, *each], launcher, {**os.environ, **env}, timeout)
    return ok, [folder / f"rank.{rank}" for rank in range(ranks)], launcher


def text(log):
    return log.read_text(errors="replace") if log.exists() else ""


def report_failure(logs, launcher):
    """Show the output of the launcher and of the ranks whose tests failed.

    If no rank reports a failure, show the output of the ranks that were cut short.
    """
    failing = [log for log in logs if Totals(text(log))["failed"]] or [log for log in logs if not last_line(text(log))]
    for log in dict.fromkeys([launcher, *failing]):
        lines = text(log).splitlines()
        print(f"---- {os.path.relpath(log, ROOT)}, last {min(len(lines), 150)} of {len(lines)} lines")
        print("\n".join(lines[-150:]))
    print("----", flush=True)


class Report:
    """Prints the result of each run, and counts. Several threads may use it."""

    def __init__(self):
        self.totals = Totals()
        self.skipped = {}  # how many tests on which numbers of ranks, by reason
        self._lock = threading.Lock()

    def add(self, where, what, start, ok, logs, launcher):
        counts = Totals(text(logs[0]))
        if not ok:
            counts["failed"] = max(1, counts["failed"])
        elif not counts["passed"] + counts["skipped"]:
            ok, counts["failed"] = False, 1  # "no tests ran" is a failure
        with self._lock:
            self.totals.add(counts)
            for count, why in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", text(logs[0]), re.MULTILINE):
                here = self.skipped.setdefault(why, {})
                here[where] = here.get(where, 0) + int(count)
            took = time.monotonic() - start
            print(f"{'ok  ' if ok else 'FAIL'} {where:9} {what:28} {counts!s:30} {took:6.1f} s", flush=True)
            if not ok:
                report_failure(logs, launcher)


def main():
    global LOGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="default: all of test/ and test/python/")
    parser.add_argument("--ranks", default="1,2,3,4", help="numbers of ranks, separated by commas (%(default)s)")
    parser.add_argument("--logs", type=Path, default=LOGS, help="folder for the ranks' output; emptied first")
    parser.add_argument("--together", action="store_true", help="one job for all files on a number of ranks")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one file on one number of ranks")
    parser.add_argument("--smoke", action="store_true", help="only the tests that are marked so, on 2 ranks together")
    parser.add_argument("--long", action="store_true", help="only the tests that are marked so; they are left out else")
    args = parser.parse_args()
    numbers = [int(n) for n in args.ranks.split(",")]
    files = [f.resolve() for f in args.files] or sorted(ROOT.glob("test/test_*.py")) + sorted(
        ROOT.glob("test/python/test_*.py")
    )
    if args.smoke:
        numbers, args.together = [2], True
    for mark in ("smoke", "long"):
        if getattr(args, mark):
            files = [f for f in files if f"pytest.mark.{mark}" in f.read_text()]
            SELECT[:] = ["-m", mark]
    LOGS = args.logs.resolve()
    subprocess.run(["rm", "-rf", str(LOGS)], check=True)
    LOGS.mkdir(parents=True)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if (ROOT / "python").is_dir():  # otherwise a wheel is installed, and is to be tested
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))

    shared = [f for f in files if f.name not in ALONE]
    runs = []
    for ranks in numbers:
        here = [f for f in shared if ranks <= 2 or f.name not in OF_TWO]
        runs += [(ranks, {}, here)] if args.together and here else [(ranks, {}, [f]) for f in here]
    for way in (OVER_TCP, ON_TWO_HOSTS):
        if way[0] in numbers:
            runs += [(*way, [f]) for f in shared if f.name == "test_torch_ops.py"]

    report = Report()

    def on_ranks():
        for ranks, extra, some in runs:
            start = time.monotonic()
            outcome = test_ranks(some, ranks, extra, args.timeout * min(len(some), 3))
            what = some[0].name if len(some) == 1 else f"{len(some)} files together"
            report.add(" ".join([f"np {ranks}", *extra.values()]), what, start, *outcome)

    def alone(file):
        start = time.monotonic()
        report.add("alone", file.name, start, *test_alone(file, 3 * args.timeout))

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:  # the files of ALONE wait more than they compute
        try:
            lanes = [one.submit(on_ranks), *(two.submit(alone, file) for file in files if file.name in ALONE)]
            for lane in lanes:
                lane.result()
        except KeyboardInterrupt:
            for process in list(_running):
                process.send_signal(signal.SIGTERM)
            os._exit(130)  # do not wait for the tests that are left
    for why, places in sorted(report.skipped.items()):
        print(f"skipped: {', '.join(f'{n} {where}' for where, n in places.items())}: {why}")
    totals = report.totals
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    sys.exit(1 if totals["failed"] or not totals["passed"] else 0)


if __name__ == "__main__":
    main()
