#!/usr/bin/env python3
"""Lists the lines of Go files that are longer than 120 columns; a tab counts as 4. Exits with 1 if there are any.

A raw string cannot be cut, so a line that is in one, or holds one, may be longer: expected texts, scripts, struct tags.
"""

import pathlib
import re
import subprocess
import sys

LIMIT = 120
# What may hold a backquote that opens no raw string comes first.
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`[^`]*`', re.DOTALL)


def too_long(source):
    """Numbers of the lines that are too long."""
    raw = set()
    for token in TOKEN.finditer(source):
        if token.group().startswith("`"):
            first = source.count("\n", 0, token.start()) + 1
            raw.update(range(first, first + token.group().count("\n") + 1))
    lines = enumerate(source.split("\n"), 1)
    return [number for number, line in lines if len(line.expandtabs(4)) > LIMIT and number not in raw]


def main():
    found = False
    for name in subprocess.run(["git", "ls-files", "*.go"], check=True, capture_output=True, text=True).stdout.split():
        path = pathlib.Path(name)
        for number in too_long(path.read_text()) if path.exists() else ():
            found = True
            print(f"{name}:{number}: longer than {LIMIT} columns")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
