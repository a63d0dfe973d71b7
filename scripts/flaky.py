"""Runs failed tests again, alone, where FLAKY_TESTS names a file.

A test that then passes is flaky: it does not fail its suite, and the file gets a line. .ci/run sets FLAKY_TESTS;
without it a failed test is a failure.

    FLAKY_TESTS=FILE python3 scripts/flaky.py    shows the lines; status 1 if there are more than MOST
"""

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

# How often a failed test is run again, at most.
TRIES = 2
# More flaky tests than this fail the run.
MOST = 3
# With more failed tests than this in a suite, the change is the likely cause. None is run again, to save the time.
MANY = 10


def load():
    """Return the load averages of the last 1, 5 and 15 minutes."""
    return "{:.1f} {:.1f} {:.1f}".format(*os.getloadavg())


@dataclass
class Failure:
    """A test that has failed: its name, what it printed, and how busy the machine was then."""

    name: str
    output: str = ""
    load: str = field(default_factory=load)

    def seed(self):
        """Return the seed that the test printed, or None: it draws nothing at random."""
        found = re.search(r"\bseeds?\b\W{0,3}(-?\d+)", self.output, re.IGNORECASE)
        return found and found[1]


def wanted(failures):
    """Return whether tests are to be run again, of which so many have failed."""
    if not os.environ.get("FLAKY_TESTS") or not failures:
        return False
    if failures > MANY:
        print(f"{failures} tests failed: more than {MANY}, so none is run again", flush=True)
        return False
    return True


def passes(failure, run):
    """Return whether a failed test passes in one of TRIES runs. If so, list it as flaky.

    run(n) runs the test alone, as the n-th try, and returns whether it passed.
    """
    for n in range(1, TRIES + 1):
        print(f"again, alone, {n} of {TRIES}: {failure.name}", flush=True)
        if run(n):
            seed = f"seed {failure.seed()}" if failure.seed() else "no seed"
            where = f"load {failure.load} on {os.cpu_count()} cores"
            line = f"{failure.name}: passed when run again, try {n}; {seed}; {where}"
            with Path(os.environ["FLAKY_TESTS"]).open("a") as file:
                file.write(line + "\n")
            print(f"flaky: {line}", flush=True)
            return True
    print(f"failed each time: {failure.name}", flush=True)
    return False


def main():
    file = Path(os.environ["FLAKY_TESTS"])
    lines = file.read_text().splitlines() if file.exists() else []
    if lines:
        print(f"{len(lines)} flaky tests, failed once and passed alone ({os.path.relpath(file)}):")
        print("\n".join(f"  {line}" for line in lines))
    if len(lines) > MOST:
        sys.exit(f"more than {MOST} flaky tests fail the run")


if __name__ == "__main__":
    main()
