"""What becomes of a job's processes when its driver is interrupted, or killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MARK = "GOROVOD_SPARK_TEST"
HERE = Path(__file__).parent


def marked(mark):
    """The processes that come from the driver with this mark."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ")[:200]
        except OSError:
            continue
    return found


@pytest.fixture
def driver(tmp_path):
    """Start a driver, and wait until its two ranks run. Kills what is left of it."""
    mark = f"{os.getpid()}.{time.time_ns()}"
    process = subprocess.Popen(
        [sys.executable, str(HERE / "driver.py"), "sleep", str(tmp_path)],
        env={**os.environ, MARK: mark},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: len(list(tmp_path.glob("rank.*"))) == 2, 120, process)
    yield process, mark
    process.kill()
    process.wait()
    for pid in marked(mark):
        os.kill(pid, signal.SIGKILL)


def until(true, seconds, process=None):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end and (process is None or process.poll() is None)
        time.sleep(0.1)


def test_an_interrupt_ends_the_job_and_not_the_session(driver):
    process, _ = driver
    ranks = [int((Path(process.args[-1]) / f"rank.{rank}").read_text()) for rank in range(2)]
    process.send_signal(signal.SIGINT)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks), 60, process)
    out, _ = process.communicate(timeout=120)
    assert out.splitlines() == ["interrupted []", "True"]


def test_a_killed_driver_leaves_nothing(driver):
    process, mark = driver
    assert len(marked(mark)) >= 8  # driver, its JVM, two executors, their Pythons, supervisors and ranks
    process.kill()
    process.wait()
    until(lambda: not marked(mark), 60)
