"""Where a late rank's program is, read out of its interpreter without the GIL."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from horovod.common import _lib, _stack

pytestmark = pytest.mark.skipif("HOROVOD_RANK" in os.environ, reason="one process")

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-the-tests"
OFFER = "from horovod.common import _lib, _stack; print(_stack.offer(_lib.load()))"

# Rank 1 holds the GIL in a loop in C, so its other thread stands still; rank 0 waits for it.
PROGRAM = """
import itertools, threading, time
import torch
import horovod.torch as hvd

ticks = []

def tick():
    while True:
        ticks.append(time.monotonic())
        time.sleep(0.01)

def hold_the_gil(seconds):
    began = time.monotonic()
    sum(itertools.repeat(0, 10**6))
    turns = int(1e6 * seconds / (time.monotonic() - began))
    before = time.monotonic()
    sum(itertools.repeat(0, turns))
    after = time.monotonic()
    print("held for", after - before, "with", sum(before + 0.1 < t < after - 0.1 for t in ticks), "ticks", flush=True)

class Loader:
    def next_batch(self):
        hold_the_gil(8)

hvd.init()
if hvd.rank() == 1:
    threading.Thread(target=tick, daemon=True).start()
    Loader().next_batch()
hvd.allreduce(torch.ones(1), name="late")
"""


def test_this_interpreter_is_known():
    def deep(n):
        return deep(n - 1) if n else _stack.offer(_lib.load())

    assert deep(0) and deep(300)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_other_interpreters_are_known(version):
    found = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
    if not any(found):
        pytest.skip(f"Python {version} is not there")
    run = subprocess.run(
        [next(filter(None, found)), "-c", OFFER],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    if run.returncode:
        pytest.skip(f"Python {version} does not start")
    assert run.stdout == "True\n"


def test_an_interpreter_that_says_something_else_of_itself_is_left_alone():
    facts = (ctypes.c_uint64 * 8)(*sys.version_info[:2], *[4096] * 5, 1)
    assert _lib.load().gorovod_offer_stack(facts, b"python/test_stack.py", b"somewhere") == -1
    assert _stack.offer(_lib.load())


def test_a_loop_in_c_that_holds_the_gil_is_named(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    job = subprocess.Popen(
        [str(ROOT / "build" / "horovodrun"), "-np", "2", "--dashboard=0", sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "GOROVOD_METRICS_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = []
    try:
        while "dashboard is at" not in (lines or [""])[-1]:
            lines.append(job.stdout.readline())
            assert lines[-1], lines
        url = re.search(r"http\S+/", lines[-1]).group() + "snapshot"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        seen, deadline = {}, time.monotonic() + 60
        while "has been in hold_the_gil" not in seen.get("text", "") and time.monotonic() < deadline:
            with urllib.request.urlopen(request, timeout=10) as answer:
                snapshot = json.load(answer)
            seen = snapshot.get("where", {})
            time.sleep(0.2)
        assert seen.get("rank") == 1, (snapshot, lines)
        folder = tmp_path.name
        line = PROGRAM.split("\n").index("    sum(itertools.repeat(0, turns))") + 1
        assert seen["frames"] == [
            f"<module> ({folder}/train.py:{PROGRAM.split(chr(10)).index('    Loader().next_batch()') + 1})",
            f"{'Loader.' if sys.version_info >= (3, 11) else ''}next_batch ({folder}/train.py:"
            f"{PROGRAM.split(chr(10)).index('        hold_the_gil(8)') + 1})",
            f"hold_the_gil ({folder}/train.py:{line})",
        ]
        assert re.match(r"its program has been in hold_the_gil \(.*\) for \d", seen["text"])
        assert "rank 1" in snapshot["sentence"] and "hold_the_gil" not in snapshot["sentence"]
        lines.append(job.communicate(timeout=100)[0])
        held = re.search(r"held for ([\d.]+) with (\d+) ticks", lines[-1])
        assert job.returncode == 0 and float(held[1]) > 3 and held[2] == "0", lines
    finally:
        if job.poll() is None:
            job.kill()
            job.wait()
        job.stdout.close()
