"""Writes the tests' results under other Pythons and PyTorches into docs/compatibility.md.

    python scripts/compatibility.py build/matrix/*.json

A run replaces the row of the same system, Python and PyTorch; the other rows stay. scripts/matrix.sh writes the files,
one for each system.
"""

import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
START, END = "<!-- written by scripts/compatibility.py -->", "<!-- end -->"
COLUMNS = ("system", "glibc", "Python", "PyTorch", "tests on 2 ranks", "demo on 2 ranks", "date")
PYTHONS = [f"3.{minor}" for minor in range(9, 15)]
# Minor releases, from the first that is supported to the newest.
PYTORCHES = ["1.13", *(f"2.{minor}" for minor in range(16))]
# The first and the last minor version of Python for which PyPI has a wheel, by the first PyTorch of which that holds
# (from the files of torch on PyPI, 2026-11-26).
WHEELS = {(1, 13): (8, 11), (2, 2): (8, 12), (2, 5): (9, 13), (2, 9): (10, 14), (2, 15): (11, 15)}


def table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def known_rows(page):
    """Return the rows of the first table between the marks."""
    part = page.partition(START)[2].partition(END)[0].strip().split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]


def minor(version):
    return ".".join(re.findall(r"\d+", version)[:2])


def order(row):
    return [int(n) for n in re.findall(r"\d+", row[2])] + [int(n) for n in re.findall(r"\d+", row[3])]


def grid(rows):
    """Return a table of Python against PyTorch: what was tested, what nobody ran, what PyPI has no wheel for."""
    tested = {}
    for row in sorted(rows, key=lambda row: not row[4].startswith("part")):  # all tests count more than a part of them
        if ", 0 failed" in row[4] and row[5] == "passed":
            tested[minor(row[2]), minor(row[3])] = "part" if row[4].startswith("part") else "all"
    lines = [
        [torch, *(tested.get((python, torch)) or untested(python, torch) for python in PYTHONS)] for torch in PYTORCHES
    ]
    return table(["PyTorch \\ Python", *PYTHONS], lines)


def untested(python, torch):
    """The cell of a pair that nobody has run."""
    major, release = map(int, torch.split("."))
    first, last = WHEELS[max(since for since in WHEELS if since <= (major, release))]
    return "untested" if first <= int(python.split(".")[1]) <= last else "no wheel"


def main():
    rows = {tuple(row[i] for i in (0, 2, 3)): row for row in known_rows(PAGE.read_text())}
    for file in sys.argv[1:]:
        found = json.loads(Path(file).read_text())
        row = [str(found[column]) for column in COLUMNS]
        rows[tuple(row[i] for i in (0, 2, 3))] = row
    ordered = sorted(rows.values(), key=order)
    text = f"{START}\n{table(COLUMNS, ordered)}\n{grid(ordered)}{END}"
    page = PAGE.read_text()
    PAGE.write_text(page[: page.index(START)] + text + page[page.index(END) + len(END) :])


if __name__ == "__main__":
    main()
