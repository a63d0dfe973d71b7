"""Runs the Python tests: each file on 1, 2 and 3 ranks under horovodrun, and those of the collectives on 4.

    python scripts/python_tests.py [--ranks N,…] [--together | --alone] [--smoke | --long] [FILE…]

The ranks run under the Python that runs this script. Files that start horovodrun themselves
run once, two at a time, beside the others, because they wait more than they compute. Every rank's output
goes to build/test-logs. After a failure the script shows the output that explains it. Where FLAKY_TESTS is set, failed
tests are run again at the end (scripts/flaky.py).
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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import flaky

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
    "test_flaky.py",
    "test_gpu_report.py",
    "test_imports.py",
    "test_jax_docstrings.py",
    "test_jax_jobs.py",
    "test_loss_curve.py",
    "test_names.py",
    "test_paired.py",
    "test_patches.py",
    "test_prepare.py",
    "test_repository.py",
    "test_run.py",
    "test_site.py",
    "test_starter.py",
    "test_startup.py",
    "test_tensorflow_docstrings.py",
    "test_tensorflow_jobs.py",
    "test_torch_distributed_departures.py",
    "test_torch_distributed_jobs.py",
    "test_torch_distributed_left.py",
    "test_torch_nccl.py",
    "test_upstream.py",
}
# Tests of features that do not depend on the number of ranks. They run on at most two.
OF_TWO = {
    "test_fork.py",
    "test_keras_on_torch.py",
    "test_native.py",
    "test_native_arrays.py",
    "test_timeline.py",
    "test_torch_compile.py",
    "test_torch_compile_distributed.py",
    "test_torch_distributed_short.py",
    "test_torch_distributed_short_ends.py",
    "test_torch_gpu.py",
    "test_torch_staging.py",
}
# Tests of how collectives divide their work among ranks. Only they run on four, unless --ranks asks for four.
OF_FOUR = {
    "test_adasum.py",
    "test_adasum_optimizer.py",
    "test_join.py",
    "test_large_outputs.py",
    "test_process_sets.py",
    "test_sharded_embedding.py",
    "test_sync_batch_norm.py",
    "test_torch_groups.py",
    "test_torch_kept_compression.py",
    "test_torch_ops.py",
    "test_torch_reduce.py",
    "test_torch_shares.py",
}
# Further runs, for the other transports: (ranks, environment). Names with a dash are options of the launcher.
OVER_TCP = (3, {"GOROVOD_TRANSPORT": "tcp"})
# Two names of this host, so that the ranks act as if they were on two hosts.
ON_TWO_HOSTS = (4, {"-H": "localhost:2,127.0.0.1:2"})
OUTCOMES = ("passed", "failed", "skipped", "flaky")
SELECT = ["-m", "not long"]  # options of pytest
TEST = r"\S+\.py::\w+(?:::\w+)?(?:\[.*?\](?=\s|$))?"  # as pytest names a test


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
        return ", ".join(f"{n} {outcome}" for outcome, n in self.items() if n or outcome in ("passed", "failed"))


def last_line(log):
    """Return pytest's last line, such as "3 passed in 0.1s"; empty if pytest did not print it."""
    lines = [line for line in log.splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", line)]
    return lines[-1] if lines else ""


@dataclass
class Job:
    """Tests that one pytest runs on each of so many ranks; ranks 0: they start their jobs themselves."""

    files: list
    ranks: int
    timeout: float
    extra: dict = field(default_factory=dict)
    test: str = ""  # the only one that runs, as pytest names it
    suffix: str = ""  # of the names of logs

    @property
    def where(self):
        return " ".join([f"np {self.ranks}", *self.extra.values()]) if self.ranks else "alone"

    @property
    def what(self):
        return self.test or (self.files[0].name if len(self.files) == 1 else f"{len(self.files)} files together")

    @property
    def stem(self):
        return (self.files[0].stem if len(self.files) == 1 else "together") + self.suffix

    def pytest(self):
        # -v names a test before it runs: the last name is that of the test in which a rank has ended.
        options = ["-v", "-rfEs", f"--rootdir={ROOT}", "--durations=12", "--durations-min=1"]
        options += ["-o", "faulthandler_timeout=100", *SELECT]
        return [sys.executable, "-m", "pytest", *options, *([self.test] if self.test else map(str, self.files))]


@dataclass
class Result:
    ok: bool
    logs: list  # of the ranks
    launcher: Path

    def failed(self):
        """Return the names of the failed tests; and whether others have not run, because a rank has ended early.

        There is no name if the tests could not begin, for example because a file cannot be imported.
        """
        failed, cut = [], False
        for log in map(text, self.logs):
            failed += re.findall(rf"^(?:FAILED|ERROR) ({TEST})", log, re.MULTILINE)
            cut = cut or not last_line(log)
        if not failed:
            ended_early = [log for log in map(text, self.logs) if not last_line(log)]
            begun = [re.findall(rf"^({TEST})", log, re.MULTILINE) for log in ended_early]
            failed = [names[-1] for names in begun if names]
        return list(dict.fromkeys(failed)), cut


_running = {}  # each process, and the signal that ends its jobs


def run(command, log, env, timeout, interrupt=signal.SIGTERM):
    """Run a command with its output to the file log. Return whether it succeeded within timeout seconds."""
    with log.open("wb") as out:
        output = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, **output, cwd=ROOT, env=env, start_new_session=True)
        _running[process] = interrupt
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
            del _running[process]


def run_job(job):
    if not job.ranks:
        log = LOGS / f"alone-{job.stem}.log"
        ok = run(job.pytest(), log, os.environ, job.timeout, signal.SIGINT)  # fixtures end what they have started
        return Result(ok, [log], log)
    folder = LOGS / "-".join([f"np{job.ranks}", *job.extra.values(), job.stem])
    folder.mkdir()
    # -x: once a test has failed on a rank, this rank is out of step with the others.
    each = ["bash", "-c", 'exec "$@" >"$0/rank.$HOROVOD_RANK" 2>&1', str(folder), *job.pytest(), "-x"]
    launcher = folder / "horovodrun"
    options = [word for name, value in job.extra.items() if name.startswith("-") for word in (name, value)]
    env = {name: value for name, value in job.extra.items() if not name.startswith("-")}
    ok = run([HOROVODRUN, "-np", str(job.ranks), *options, *each], launcher, {**os.environ, **env}, job.timeout)
    return Result(ok, [folder / f"rank.{rank}" for rank in range(job.ranks)], launcher)


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
        self.failures = []
        self._lock = threading.Lock()

    def add(self, job, start, result, before=()):
        """Print the result of a job. Return whether it is good: "no tests ran" is a failure."""
        counts = Totals(text(result.logs[0]))
        ok = result.ok and counts["passed"] + counts["skipped"] > 0
        if not ok:
            counts["failed"] = max(1, counts["failed"])
        with self._lock:
            self.totals.add(counts)
            for count, why in re.findall(r"^SKIPPED \[(\d+)\] \S+ (.*)$", text(result.logs[0]), re.MULTILINE):
                here = self.skipped.setdefault(why, {})
                here[job.where] = here.get(job.where, 0) + int(count)
            took = time.monotonic() - start
            print(f"{'ok  ' if ok else 'FAIL'} {job.where:9} {job.what:28} {counts!s:30} {took:6.1f} s", flush=True)
            if not ok:
                report_failure(result.logs, result.launcher)
                self.failures.append(Failed(job, result, counts["failed"], set(before)))
        return ok

    def run_again(self):
        """Run failed tests again. Nothing else runs meanwhile."""
        if not flaky.wanted(sum(max(len(one.tests()), 1) for one in self.failures)):
            return
        for one in self.failures:  # it grows while the tests that have not run yet fail, too
            listed = one.passes()
            if listed:
                self.totals["failed"] -= one.count
                self.totals["flaky"] += listed
                self._run_rest(one)

    def _run_rest(self, one):
        """Run the tests that a job has not run because a rank ended early, and those that ended it once more."""
        tests, cut = one.result.failed()
        if cut:
            names = [file.name for file in one.job.files]
            first = min(names.index(Path(test.partition("::")[0]).name) for test in tests)
            rest = replace(one.job, files=one.job.files[first:], suffix=f"{one.job.suffix}-rest")
            self.add(rest, time.monotonic(), run_job(rest), {*one.before, *tests})


@dataclass
class Failed:
    """A job that failed."""

    job: Job
    result: Result
    count: int  # how many of its tests failed, by the report
    before: set  # what failed in this job before, and then passed alone: it is not run again twice
    load: str = field(default_factory=flaky.load)

    def tests(self):
        return self.result.failed()[0]

    def passes(self):
        """Return how many tests are flaky, or 0 if one fails when it runs again alone."""
        tests = self.tests()
        if not tests or self.before.intersection(tests):
            return 0
        output = "\n".join(map(text, [self.result.launcher, *self.result.logs]))
        for number, test in enumerate(tests):
            name = f"{test}, {self.job.where}, {os.path.relpath(LOGS, ROOT)}"
            alone = partial(passes_alone, replace(self.job, test=test), number)
            if not flaky.passes(flaky.Failure(name, output, self.load), alone):
                return 0
        return len(tests)


def passes_alone(job, number, attempt):
    job = replace(job, suffix=f"{job.suffix}-again-{number}-{attempt}")
    result = run_job(job)
    good = result.ok and Totals(text(result.logs[0]))["passed"] > 0
    if not good:
        report_failure(result.logs, result.launcher)
    return good


def jobs_of(args, files, numbers):
    """Return the jobs on numbers of ranks, which run one after another, and the tests that start their own."""
    if args.alone:
        return [], [Job(files, 0, 3 * args.timeout * len(files))]
    shared = [f for f in files if f.name not in ALONE]
    runs = []
    for ranks in numbers:
        here = [f for f in shared if ranks <= 2 or f.name not in OF_TWO]
        if ranks == 4 and not args.ranks:
            here = [f for f in here if f.name in OF_FOUR]
        runs += [(ranks, {}, here)] if args.together and here else [(ranks, {}, [f]) for f in here]
    for way in (OVER_TCP, ON_TWO_HOSTS):
        if way[0] in numbers:
            runs += [(*way, [f]) for f in shared if f.name == "test_torch_ops.py"]
    jobs = [Job(some, ranks, args.timeout * min(len(some), 3), extra) for ranks, extra, some in runs]
    return jobs, [Job([file], 0, 3 * args.timeout) for file in files if file.name in ALONE]


def main():
    global LOGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="default: all of test/ and test/python/")
    parser.add_argument("--ranks", help="numbers of ranks, separated by commas (1,2,3, and 4 for collectives)")
    parser.add_argument("--logs", type=Path, default=LOGS, help="folder for the ranks' output; emptied first")
    parser.add_argument("--together", action="store_true", help="one job for all files on a number of ranks")
    parser.add_argument("--alone", action="store_true", help="one pytest for all files; these start their jobs")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one file on one number of ranks")
    parser.add_argument("--smoke", action="store_true", help="only the tests that are marked so, on 2 ranks together")
    parser.add_argument("--long", action="store_true", help="only the tests that are marked so; they are left out else")
    args = parser.parse_args()
    numbers = [int(n) for n in (args.ranks or "1,2,3,4").split(",")]
    files = [f.resolve() for f in args.files] or sorted(ROOT.glob("test/test_*.py")) + sorted(
        ROOT.glob("test/python/test_*.py")
    )
    if args.smoke:
        numbers, args.together = [2], True
    if args.alone:
        SELECT.clear()  # long ones, too
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

    report = Report()

    def run_all(jobs):
        for job in jobs:
            start = time.monotonic()
            if len(job.files) > 1:
                print(f"…    {job.where:9} {job.what:28} output: {os.path.relpath(LOGS, ROOT)}", flush=True)
            report.add(job, start, run_job(job))

    on_ranks, alone = jobs_of(args, files, numbers)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:  # the files of ALONE wait more than they compute
        try:
            for lane in [one.submit(run_all, on_ranks), *(two.submit(run_all, [job]) for job in alone)]:
                lane.result()
            one.submit(report.run_again).result()
        except KeyboardInterrupt:
            for process, interrupt in list(_running.items()):
                process.send_signal(interrupt)
            os._exit(130)  # do not wait for the tests that are left
    for why, places in sorted(report.skipped.items()):
        print(f"skipped: {', '.join(f'{n} {where}' for where, n in places.items())}: {why}")
    totals = report.totals
    also = f", {totals['flaky']} flaky" if totals["flaky"] else ""
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped{also}")
    sys.exit(1 if totals["failed"] or not totals["passed"] + totals["flaky"] else 0)


if __name__ == "__main__":
    main()
