"""Runs the programs of the ecosystem, one after the other, and leaves what each found in build/ecosystem/found.

    python test/ecosystem/run.py [NAME…]

The environments must be there: scripts/ecosystem.sh makes them and calls this. A program that fails, hangs or cannot be
fetched gets a row that says so. Exit status 1 if one failed for a reason that nobody has written down.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import xml.etree.ElementTree
from pathlib import Path

from programs import PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "ecosystem"
# What the checkout, or a job around this one, has set for itself.
FOREIGN = re.compile(r"PYTHONPATH|(_?GOROVOD|HOROVOD|OMPI|PMIX?|SLURM|MASTER)_.*|(LOCAL_)?RANK|WORLD_SIZE")


class NotRun(Exception):
    """A program that could not be started."""


def fetch(program: Program, python: Path) -> Path:
    """The folder of the unpacked sdist, which pip fetches unless it is there."""
    sources = BUILD / "sources"
    name, _, version = program.package.partition("==")
    folder = next((f for f in sources.glob(f"*-{version}") if same(f.name, f"{name}-{version}")), None)
    if folder is not None:
        return folder
    sources.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", sources]
    done = subprocess.run([*command, program.package], capture_output=True, text=True)
    archive = next((f for f in sources.glob("*.tar.gz") if same(f.name, f"{name}-{version}.tar.gz")), None)
    if archive is None:
        raise NotRun(f"its sdist cannot be fetched: {last_line(done.stderr)}")
    with tarfile.open(archive) as tar:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.9.17, 3.10.12, 3.11.4
        tar.extractall(sources, **safely)
    archive.unlink()
    return fetch(program, python)


def same(one: str, other: str) -> bool:
    return re.sub("[-_.]", "-", one).lower() == re.sub("[-_.]", "-", other).lower()


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def execute(program: Program) -> tuple[int, str, Path]:
    """Run a program and return its exit status, -1 if it took too long, its output, and where its report would be."""
    bin_ = BUILD / program.environment / "bin"
    python = bin_ / "python"
    if not python.exists():
        raise NotRun(f"its environment is missing: see build/ecosystem/{program.environment}.log")
    junit = BUILD / "found" / f"{slug(program)}.xml"
    junit.unlink(missing_ok=True)
    source = fetch(program, python) if program.sdist else BUILD / "work"
    source.mkdir(parents=True, exist_ok=True)
    places = {"python": python, "horovodrun": bin_ / "horovodrun", "root": ROOT, "source": source, "junit": junit}
    command = [word.format(**places) for word in program.command]
    environment = {name: value for name, value in os.environ.items() if not FOREIGN.fullmatch(name)}
    environment |= {"PATH": f"{bin_}:{environment['PATH']}", "HF_HUB_OFFLINE": "1", **program.variables}
    log = BUILD / "logs" / f"{slug(program)}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=source, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout=program.seconds)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            end(process)
    return status, log.read_text(errors="replace"), junit


def end(process: subprocess.Popen) -> None:
    """End what is left of a program: first by SIGTERM, on which horovodrun ends its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def failures(junit: Path) -> tuple[dict[str, int], dict[str, str]]:
    """How many tests passed and were skipped, by pytest's report, and the text of each failure by its test's name."""
    counts, texts = {"passed": 0, "skipped": 0}, {}
    for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if broken is not None:
            texts[f"{case.get('classname', '')}.{case.get('name')}"] = f"{broken.get('message')}\n{broken.text}"
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts, texts


def judge(program: Program, status: int, output: str, junit: Path) -> tuple[str, list[str], bool]:
    """The result in a few words, the reasons for what did not pass, and whether all of these were known."""
    if status == -1:
        return "failed", [f"it did not end within {program.seconds} s"], False
    if junit.exists():
        counts, texts = failures(junit)
        result = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)
        result += f", {len(texts)} failed" if texts else ""
    else:
        told = re.search(r"(?:^|>:)passed: (.*)", output, re.MULTILINE)  # an exit status alone says nothing was checked
        texts = {} if status == 0 and told else {program.name: output}
        result = "failed" if texts else f"passed: {told[1]}"
    reasons, known = [], True
    for name, text in texts.items():
        reason = next((why for what, why in program.known.items() if re.search(what, f"{name}\n{text}")), None)
        if reason is None:
            known = False
            reason = f"unexplained: `{name.rpartition('.')[2]}`: {complaint(text)}"
        if reason not in reasons:
            reasons.append(reason)
    if junit.exists() and status not in (0, 1) or not result:
        return result or "failed", [*reasons, f"it ended with status {status}: {last_line(output)}"], False
    return result, reasons, known


def complaint(text: str) -> str:
    """The line of a failure that says most, short enough for a table."""
    lines = [line for line in text.splitlines() if re.search(r"\b\w*(Error|Exception)\b", line)] or [last_line(text)]
    return re.sub(r"[|`<>]", " ", lines[-1]).strip()[:160]


def slug(program: Program) -> str:
    return re.sub(r"[^a-z0-9]+", "-", program.name.lower()).strip("-")


def main() -> int:
    wanted = sys.argv[1:]
    unknown = set(wanted) - {slug(program) for program in PROGRAMS}
    if unknown:
        print(f"ecosystem: no program {sorted(unknown)}; there are: {', '.join(slug(p) for p in PROGRAMS)}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the program is ended, too
    for folder in ("found", "logs"):
        (BUILD / folder).mkdir(parents=True, exist_ok=True)
    all_known = True
    for program in PROGRAMS:
        if wanted and slug(program) not in wanted:
            continue
        try:
            result, reasons, known = judge(program, *execute(program))
        except NotRun as e:
            result, reasons, known = "not run", [str(e)], False
        except Exception as e:
            result, reasons, known = "not run", [f"{type(e).__name__}: {e}"], False
        all_known = all_known and known
        print(f"ecosystem: {program.name}: {result}", *reasons, sep="\n  ", flush=True)
        row = {
            "program": program.name,
            "package": program.package.replace("==", " "),
            "what runs": ("ours: " if program.ours else "") + program.what,
            "result": result,
            "what does not pass, and why": "; ".join(reasons),
            "date": datetime.date.today().isoformat(),
        }
        (BUILD / "found" / f"{slug(program)}.json").write_text(json.dumps(row))
    return 0 if all_known else 1


if __name__ == "__main__":
    sys.exit(main())
