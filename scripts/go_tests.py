#!/usr/bin/env python3
"""Runs go test, shows the output of the tests that fail, and lists at the end the skipped tests, with the reasons.

python3 scripts/go_tests.py ARGUMENT…    the arguments of go test; packages begin with "./"

Where FLAKY_TESTS is set, failed tests are run again (scripts/flaky.py). A build that fails and a data race are never
flaky.
"""

import collections
import json
import os
import re
import subprocess
import sys
from functools import partial

import flaky

# Lines of a program that has ended before all of its tests have run.
CRASH = r"^(panic: .*|fatal error: .*|signal: .*|exit status (?!1$)\d+)$"


class Run:
    """What go test -json has reported so far."""

    def __init__(self):
        self.output = collections.defaultdict(list)  # of tests that have not ended, by package and test
        self.said = collections.defaultdict(list)  # by each package
        self.skipped = collections.defaultdict(list)  # tests, by reason
        self.failed = []  # (package, test, Failure); test "" for the whole package
        self.passed = 0
        self.final = False  # something failed that no other run can mend
        self._tests = collections.defaultdict(list)  # the same of packages that have not ended

    def take(self, event):
        package, test = event.get("Package", ""), event.get("Test")
        action, text = event["Action"], event.get("Output", "")
        if action == "build-output" or (action == "output" and not test):
            self.said[package].append(text)
            if text != "PASS\n":
                print(text, end="", flush=True)
        elif action == "run":
            self.output[package, test]  # it may print nothing
        elif action == "output":
            self.output[package, test].append(text)
        elif action in ("pass", "skip", "fail") and test:
            self._end_test(package, test, action)
        elif action in ("pass", "fail"):
            self._end_package(package, action, event)

    def _end_test(self, package, test, action):
        lines = self.output.pop((package, test), [])
        self.said[package] += lines
        if action == "pass":
            self.passed += 1
        elif action == "skip":
            self.skipped[reason(lines)].append(f"{package.rpartition('/')[2]}.{test}")
        else:
            print("".join(lines), end="", flush=True)
            self._tests[package].append((test, "".join(lines)))

    def _end_package(self, package, action, event):
        unfinished = [key for key in self.output if key[0] == package]  # these were cut short
        for key in unfinished:
            lines = self.output.pop(key)
            self.said[package] += lines
            print("".join(lines), end="", flush=True)
        said, tests = "".join(self.said.pop(package, [])), self._tests.pop(package, [])
        if action == "pass":
            return
        if event.get("FailedBuild") or re.search(r"^FAIL\s.*\[(build|setup) failed\]$", said, re.MULTILINE):
            self.final = True
        elif "WARNING: DATA RACE" in said:
            self.final = True
            print(f"{package}: a data race is a fault even if it does not show again", flush=True)
        elif unfinished or not tests or re.search(CRASH, said, re.MULTILINE):
            # The program of the tests ended early, so that others have not run: all of them are to be run again.
            ended = [test for _, test in unfinished] + [test for test, _ in tests]
            names = ", ".join(dict.fromkeys(map(top, ended)))
            name = f"{package}, the whole package" + (f" (it ended in {names})" if names else "")
            self.failed.append((package, "", flaky.Failure(name, said)))
        else:
            for one in dict.fromkeys(top(test) for test, _ in tests):
                mine = [(test, text) for test, text in tests if top(test) == one]
                deepest = [t for t, _ in mine if not any(other.startswith(f"{t}/") for other, _ in mine)]
                failure = flaky.Failure(f"{package} {', '.join(deepest[:3])}", "".join(text for _, text in mine))
                self.failed.append((package, one, failure))

    def list_skipped(self):
        for why, tests in sorted(self.skipped.items()):
            more = f" and {len(tests) - 3} more" if len(tests) > 3 else ""
            print(f"skipped: {', '.join(tests[:3])}{more}: {why}")


def top(test):
    """Return the name of the function of a test: what go test -run can run alone."""
    return test.partition("/")[0]


def reason(lines):
    """Return the last line that a skipped test has printed."""
    said = [re.sub(r"^\s*\w+\.go:\d+: ", "", line).strip() for line in lines if not re.match(r"\s*(===|---) ", line)]
    return said[-1] if said else "it does not say why"


def go_test(arguments):
    """Run go test. Return its status, and what it has reported."""
    run = Run()
    command = [os.environ.get("GO", "go"), "test", "-json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as go:
        for line in go.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                print(line, end="", flush=True)
                continue
            run.take(event)
    return go.returncode, run


def passes_alone(options, package, test, _):
    """Return whether a test, or all tests of a package, pass while nothing else runs."""
    only = ["-run", f"^{re.escape(test)}$"] if test else []
    # A test that hangs again is ended sooner than the suite.
    status, run = go_test([*options, "-timeout", "5m", "-count=1", *only, package])
    return status == 0 and run.passed > 0


def main():
    arguments = sys.argv[1:]
    status, run = go_test(arguments)
    run.list_skipped()
    options = [a for a in arguments if not a.startswith("./")]
    if status and run.failed and not run.final and flaky.wanted(len(run.failed)):
        # No short cut: each test that fails each time is named.
        passed = [flaky.passes(f, partial(passes_alone, options, package, test)) for package, test, f in run.failed]
        status = 0 if all(passed) else status
    sys.exit(status)


if __name__ == "__main__":
    main()
