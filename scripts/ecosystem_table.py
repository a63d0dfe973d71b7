"""Writes into docs/ecosystem.md how programs of other projects ran over gorovod.

    python scripts/ecosystem_table.py build/ecosystem/found/*.json

A run replaces the rows of its programs; the other rows stay. test/ecosystem/run.py writes the files, one for each
program.
"""

import json
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "ecosystem.md"
START, END = "<!-- written by scripts/ecosystem_table.py -->", "<!-- end -->"
COLUMNS = ("program", "package", "what runs", "result", "what does not pass, and why", "date")


def known_rows(page):
    """Return the rows of the table between the marks, by program."""
    part = page.partition(START)[2].partition(END)[0].strip()
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:])
    return {row[0]: row for row in rows}


def main():
    page = PAGE.read_text()
    rows = known_rows(page)
    for file in sys.argv[1:]:
        found = json.loads(Path(file).read_text())
        rows[found["program"]] = [found[column].replace("|", "/").replace("\n", " ") for column in COLUMNS]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(rows[name] for name in sorted(rows, key=str.lower))]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
    PAGE.write_text(page[: page.index(START)] + f"{START}\n{table}" + page[page.index(END) :])


if __name__ == "__main__":
    main()
