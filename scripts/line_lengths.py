#!/usr/bin/env python3
"""Lists lines that are too long: in Go above 120 columns (a tab counts as 4), in prose of Markdown above 140.

Exits with 1 if there are any. A line of Go with a raw string, or within one, may be longer, because a raw string cannot
be broken: expected texts, scripts, struct tags. So may a line of Markdown in a table or a block of code.
"""

import pathlib
import re
import subprocess
import sys

LIMIT = 120
PROSE = 140
# Comments, strings and runes come first, because a backquote within them does not open a raw string.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`[^`]*`', re.DOTALL)


def too_long(source):
    """Return the numbers of the lines of Go that are too long."""
    raw = set()
    for token in TOKEN.finditer(source):
        if token.group().startswith("`"):
            first = source.count("\n", 0, token.start()) + 1
            raw.update(range(first, first + token.group().count("\n") + 1))
    lines = enumerate(source.split("\n"), 1)
    return [number for number, line in lines if len(line.expandtabs(4)) > LIMIT and number not in raw]


def too_long_prose(text):
    """Return the numbers of the lines of Markdown that are too long."""
    found, code = [], False
    for number, line in enumerate(text.split("\n"), 1):
        code ^= line.lstrip().startswith("```")
        if not code and not line.startswith("|") and len(line) > PROSE:
            found.append(number)
    return found


def main():
    found = False
    for pattern, limit, find in (("*.go", LIMIT, too_long), ("*.md", PROSE, too_long_prose)):
        files = subprocess.run(["git", "ls-files", pattern], check=True, capture_output=True, text=True).stdout.split()
        for path in map(pathlib.Path, files):
            for number in find(path.read_text()) if path.exists() else ():
                found = True
                print(f"{path}:{number}: longer than {limit} columns")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
