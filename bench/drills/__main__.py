"""Drills of the dashboard: jobs in which one rank is late, by a kind and a magnitude drawn at random.

    make drills                                     # healthy jobs, then drills; about 40 minutes
    python3 bench/drills --seed 7 --drills 20 --healthy 0

A drill passes if the page's sentence names the guilty rank within five seconds of the first late step. Whether the
sentence also says the right kind is counted separately. Magnitudes are fractions of a healthy step, from 10 to 300 %,
uniform in their logarithm.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from typing import Optional

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KINDS = ("sleeps", "reads", "starves", "computes", "link")
LIMIT = 5.0  # seconds in which a straggler must be named
EDGES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.0)


class JobFailed(Exception):
    """A job ended before its drill. The text is the job's output."""


@dataclass
class Drill:
    np: int
    kind: str
    rank: int
    magnitude: float
    healthy: float  # seconds before the fault
    tcp: bool  # over TCP instead of shared memory


@dataclass
class Result:
    drill: Drill
    step: float = 0.0
    named: Optional[float] = None  # seconds after the onset
    said: str = ""  # the kind that the page gave for the guilty rank, last or most often
    others: int = 0  # snapshots that blamed another rank
    false_alarms: int = 0  # snapshots that blamed a rank before the fault
    snapshots: int = 0
    sentence: str = ""
    failed: int = 0  # jobs that ended before the drill did; each time the drill was started again
    load: float = 0.0


def draw(rng: random.Random, np: int) -> Drill:
    magnitude = math.exp(rng.uniform(math.log(EDGES[0]), math.log(EDGES[-1])))
    kind = rng.choice(KINDS)
    return Drill(np, kind, rng.randrange(np), magnitude, rng.uniform(2.5, 4), kind == "link")


def run(drill: Drill, folder: pathlib.Path) -> Result:
    """Run a drill. A job that fails is started again, at most twice."""
    for failed in range(3):
        try:
            result = attempt(drill, folder)
            result.failed = failed
            return result
        except JobFailed as e:
            why = e
            print(e, file=sys.stderr, flush=True)
    raise SystemExit(f"three jobs have failed, the last one: {why}")


def attempt(drill: Drill, folder: pathlib.Path) -> Result:
    result = Result(drill, load=os.getloadavg()[0])
    onset, end = folder / "onset", folder / "end"
    for old in (onset, end):
        old.unlink(missing_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "GOROVOD_"))}
    env.update(
        PYTHONPATH=str(ROOT / "python"),
        DRILL_KIND=drill.kind,
        DRILL_RANK=str(drill.rank),
        DRILL_MAGNITUDE=str(drill.magnitude),
        DRILL_HEALTHY=str(drill.healthy),
        DRILL_ONSET=str(onset),
        DRILL_END=str(end),
    )
    if drill.tcp:
        env["GOROVOD_TRANSPORT"] = "tcp"
    command = [str(ROOT / "build/horovodrun"), "-np", str(drill.np), "--dashboard=0", "--log-level=INFO"]
    with open(folder / "log", "w") as log:
        job = subprocess.Popen(
            [*command, sys.executable, str(HERE / "rank.py")], env=env, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        watch(job, folder, drill, result)
    finally:
        end.touch()
        try:
            job.wait(30)
        except subprocess.TimeoutExpired:
            job.terminate()
            job.wait()
    return result


def watch(job: subprocess.Popen, folder: pathlib.Path, drill: Drill, result: Result) -> None:
    """Read the page until it names the fault, or until the time limit."""
    url, began, last = None, None, 0
    said: dict[str, int] = {}
    started = time.time()
    while job.poll() is None:
        time.sleep(0.1)
        if time.time() - started > 120:
            raise JobFailed(f"the job does not begin: {(folder / 'log').read_text()}")
        if url is None:
            found = re.search(r"the dashboard is at (\S+)", (folder / "log").read_text())
            url = found and found.group(1)
            continue
        if began is None and (folder / "onset").exists():
            text = (folder / "onset").read_text().split()
            began, result.step = float(text[0]), float(text[1])
        over = began is not None and time.time() > began + (LIMIT + 1.5 if drill.kind != "none" else LIMIT)
        if over:
            break
        try:
            with urllib.request.urlopen(url + "snapshot", timeout=10) as answer:
                now = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            continue
        if now["time"] == last:
            continue
        last = now["time"]
        blamed = now.get("straggler")
        result.snapshots += 1
        if blamed is None:
            continue
        if began is None or last / 1000 < began or drill.kind == "none":
            result.false_alarms += 1
            result.sentence = now["sentence"]
        elif blamed["rank"] != drill.rank:
            result.others += 1
            result.sentence = now["sentence"]
        else:
            if result.named is None:
                result.named = last / 1000 - began
            result.sentence = now["sentence"]
            kind = blamed.get("kind")  # left out until it is known
            if kind is not None:
                said[kind] = said.get(kind, 0) + 1
                result.said = max(said, key=lambda k: said[k])
    if job.poll() not in (None, 0):
        raise JobFailed(f"the job has failed: {(folder / 'log').read_text()}")


def passed(result: Result) -> bool:
    return result.named is not None and result.named <= LIMIT


def share(part: int, of: int) -> str:
    return f"{part} of {of}" if of else "–"


def curve(results: list[Result]) -> str:
    lines = ["| magnitude, % of a step | " + " | ".join(KINDS) + " | all | kind right | median time |"]
    lines.append("|---|" + "---|" * (len(KINDS) + 3))
    for low, high in zip(EDGES, EDGES[1:]):
        here = [r for r in results if low <= r.drill.magnitude < high]
        cells = [f"{100 * low:.0f} to {100 * high:.0f}"]
        for kind in KINDS:
            mine = [r for r in here if r.drill.kind == kind]
            cells.append(share(sum(map(passed, mine)), len(mine)))
        good = [r for r in here if passed(r)]
        cells.append(share(len(good), len(here)))
        cells.append(share(sum(r.said == r.drill.kind for r in good), len(good)))
        times = sorted(r.named for r in good if r.named is not None)
        cells.append(f"{times[len(times) // 2]:.1f} s" if times else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="default: a fresh one, which is printed")
    parser.add_argument("--drills", type=int, default=100)
    parser.add_argument("--healthy", type=int, default=100, help="healthy jobs, half on 4 ranks, and half over TCP")
    parser.add_argument("--json", help="write each result to this file, a line each")
    o = parser.parse_args()
    seed = o.seed if o.seed is not None else random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}, {os.cpu_count()} cores", flush=True)
    drills = [Drill(2 + 2 * (i % 2), "none", 0, 0.0, 3.0, i // 2 % 2 == 1) for i in range(o.healthy)]
    drills += [draw(rng, 2 + 2 * (i % 2)) for i in range(o.drills)]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for i, drill in enumerate(drills):
            result = run(drill, pathlib.Path(folder))
            results.append(result)
            named = "" if result.named is None else f"named after {result.named:.1f} s: {result.said}"
            print(
                f"{i + 1}/{len(drills)} np {drill.np} {drill.kind} {100 * drill.magnitude:.0f} %: {named} "
                f"(false alarms {result.false_alarms}, other ranks {result.others}, of {result.snapshots}; load "
                f"{result.load:.1f}) {result.sentence}",
                flush=True,
            )
            if o.json:
                with open(o.json, "a") as f:
                    f.write(json.dumps(asdict(result)) + "\n")
    healthy = [r for r in results if r.drill.kind == "none"]
    for np, tcp in itertools.product((2, 4), (False, True)):
        runs = [r for r in healthy if (r.drill.np, r.drill.tcp) == (np, tcp)]
        alarms = sum(r.false_alarms > 0 for r in runs)
        over = "TCP" if tcp else "shared memory"
        print(f"\nhealthy, np {np}, over {over}: {alarms} of {len(runs)} jobs with a false alarm", end="")
    for np in (2, 4):
        print(f"\n\nnp {np}:\n\n" + curve([r for r in results if r.drill.kind != "none" and r.drill.np == np]))
    loads = sorted(r.load for r in results)
    wrong = sum(r.others > 0 for r in results)
    early = sum(r.false_alarms > 0 for r in results if r.drill.kind != "none")
    print(f"\nanother rank blamed in {wrong}, a rank blamed before the fault in {early} of the drills; ", end="")
    again = sum(r.failed for r in results)
    print(f"{again} jobs failed and were begun anew; ", end="")
    print(f"load of the machine {loads[0]:.1f} to {loads[-1]:.1f}, median {loads[len(loads) // 2]:.1f}")


if __name__ == "__main__":
    main()
