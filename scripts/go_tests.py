#!/usr/bin/env python3
"""Runs go test, shows the output of the tests that fail, and lists at the end the skipped tests, with the reasons.

python3 scripts/go_tests.py ARGUMENT…    the arguments of go test
"""

import collections
import json
import os
import re
import subprocess
import sys


class Run:
    """What go test -json has reported so far."""

    def __init__(self):
        self.output = collections.defaultdict(list)  # of tests that have not ended, by package and test
        self.skipped = collections.defaultdict(list)  # tests, by reason

    def take(self, event):
        package, test = event.get("Package", ""), event.get("Test")
        action, text = event["Action"], event.get("Output", "")
        if action == "build-output" or (action == "output" and not test):
            if text != "PASS\n":
                print(text, end="", flush=True)
        elif action == "output":
            self.output[package, test].append(text)
        elif action in ("pass", "skip", "fail") and test:
            lines = self.output.pop((package, test), [])
            if action == "fail":
                print("".join(lines), end="", flush=True)
            elif action == "skip":
                self.skipped[reason(lines)].append(f"{package.rpartition('/')[2]}.{test}")
        elif action == "fail":  # the package: tests that have not ended were cut short
            for key in [k for k in self.output if k[0] == package]:
                print("".join(self.output.pop(key)), end="", flush=True)

    def list_skipped(self):
        for why, tests in sorted(self.skipped.items()):
            more = f" and {len(tests) - 3} more" if len(tests) > 3 else ""
            print(f"skipped: {', '.join(tests[:3])}{more}: {why}")


def reason(lines):
    """Return the last line that a skipped test has printed."""
    said = [re.sub(r"^\s*\w+\.go:\d+: ", "", line).strip() for line in lines if not re.match(r"\s*(===|---) ", line)]
    return said[-1] if said else "it does not say why"


def main():
    command = [os.environ.get("GO", "go"), "test", "-json", *sys.argv[1:]]
    run = Run()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as go:
        for line in go.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                print(line, end="", flush=True)
                continue
            run.take(event)
    run.list_skipped()
    sys.exit(go.returncode)


if __name__ == "__main__":
    main()
