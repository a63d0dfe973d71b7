"""Workers of an elastic job on Ray are killed at random moments: no hang, no commit lost, nothing left.

KILLS is the number of kills (5 by default). SEED=N repeats a run's choices.
"""

import collections
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from elastic_trains import check_commits, journals, trains

from horovod.ray import RayExecutor

KILLS = int(os.environ.get("KILLS", "5"))
MARK = "GOROVOD_RAY_TEST"  # by which processes of this test's cluster are known
SEED = int(os.environ.get("SEED", str(time.time_ns() % 1_000_000)))


@pytest.fixture
def cluster(monkeypatch):
    import ray

    monkeypatch.setenv(MARK, str(os.getpid()))
    yield ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.shutdown()


class Killer(threading.Thread):
    """Kills workers that train, one of which must always live on with the state."""

    def __init__(self, folder, stop):
        super().__init__()
        self.folder, self.stop, self.random = folder, stop, random.Random(SEED)
        self.phases = collections.Counter()
        self.resumed = []  # seconds from a kill to the next commit of a survivor
        self.killed = set()
        self.trouble = ""

    def run(self):
        try:
            last = 0.0
            for _ in range(KILLS):
                last = self.kill(last)
                if self.random.random() < 0.7:  # else the next kill meets the survivors while they form anew
                    self.await_commit(last)
                    time.sleep(self.random.uniform(0, 0.5))
                else:
                    time.sleep(self.random.uniform(0, 0.05))
            self.await_commit(last)
        except AssertionError as e:
            self.trouble = str(e)
        finally:
            self.stop.touch()

    def kill(self, last):
        in_commit = self.random.random() < 0.4
        end = time.monotonic() + 120
        while time.monotonic() < end:
            living = self.living()
            if len(living) >= 2:
                entries = living[self.random.choice(sorted(living))]
                if in_commit and entries[-1]["phase"] != "commit":
                    time.sleep(0.001)
                    continue
                phase = "re-form" if entries[-1]["at"] < last else entries[-1]["phase"]
                self.killed.add(entries[-1]["pid"])
                os.kill(entries[-1]["pid"], signal.SIGKILL)
                self.phases[phase] += 1
                return time.time()
            time.sleep(0.02)
        raise AssertionError(f"there are no two workers that train: {self.now()}")

    def living(self):
        """The journals of workers that live and have the state."""
        found = {}
        for worker, entries in journals(self.folder).items():
            if any(e["phase"] == "committed" for e in entries) and entries[-1]["pid"] not in self.killed:
                found[worker] = entries
        return found

    def await_commit(self, after):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            times = [e["at"] for es in self.living().values() for e in es if e["phase"] == "committed"]
            times = [t for t in times if t > after]
            if times:
                self.resumed.append(min(times) - after)
                return
            time.sleep(0.01)
        raise AssertionError(f"no survivor commits within 60 s of a kill: {self.now()}")

    def now(self):
        return {w: es[-1] for w, es in journals(self.folder).items()}


def test_random_kills(cluster, tmp_path):
    print(f"seed {SEED}")
    folder, stop = tmp_path / "journals", tmp_path / "stop"
    folder.mkdir()
    executor = RayExecutor(min_workers=1, max_workers=4, cooldown_range=(1, 1), elastic_timeout=120)
    executor.start()
    killer = Killer(str(folder), stop)
    killer.start()
    results = executor.run(trains_until, args=[str(folder), str(stop)])
    killer.join()
    assert not killer.trouble, f"seed {SEED}: {killer.trouble}"
    check_commits(folder, results, results[0]["step"])
    resumed = sorted(killer.resumed)
    print(
        f"seed {SEED}: {KILLS} kills, in {dict(killer.phases)}; the next commit came after "
        f"{resumed[len(resumed) // 2]:.3f} s (median), {resumed[-1]:.3f} s (most; before it "
        f"{', '.join(f'{s:.3f}' for s in resumed[-5:-1])}); {results[0]['step']} commits"
    )


def trains_until(folder, stop):
    return trains(1 << 30, folder, every=0.02, enough=lambda: os.path.exists(stop))


DRIVER = """
import sys
import ray
from elastic_trains import trains
from horovod.ray import RayExecutor
ray.init(address=sys.argv[1], log_to_driver=False)
executor = RayExecutor(min_workers=2, max_workers=2)
executor.start()
executor.run(trains, args=[1 << 30, sys.argv[2], 0.05])
"""


@pytest.fixture
def driver(cluster, tmp_path):
    """A driver in a process of its own, whose job trains."""
    process = subprocess.Popen([sys.executable, "-c", DRIVER, cluster.address_info["gcs_address"], str(tmp_path)])
    end = time.monotonic() + 90
    while not any(e["phase"] == "committed" for es in journals(tmp_path).values() for e in es):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    yield process
    process.kill()
    process.wait()


def pids(folder):
    return {e["pid"] for es in journals(folder).values() for e in es}


def drivers():
    """Processes ``gorovod drive`` of this test's cluster."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                if file.read().split("\0")[:2] != ["gorovod", "drive"]:
                    continue
            with open(f"/proc/{pid}/environ") as file:
                if f"{MARK}={os.getpid()}" in file.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def nothing_is_left(folder):
    import ray

    end = time.monotonic() + 30
    while True:
        left = [pid for pid in pids(folder) if os.path.exists(f"/proc/{pid}")] + drivers()
        free = ray.available_resources().get("CPU", 0)
        if not left and free == 4:
            return
        assert time.monotonic() < end, f"left are {left}; {free} CPUs are free"
        time.sleep(0.2)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_drivers_death_ends_the_job(driver, how, tmp_path):
    driver.send_signal(how)
    driver.wait(30)
    nothing_is_left(tmp_path)


def test_the_coordinators_death_ends_the_job(driver, tmp_path):
    from ray._private import state

    alive = state.actors(actor_state_name="ALIVE").values()
    (job,) = (actor for actor in alive if actor["ActorClassName"] == "ElasticJob")
    os.kill(job["Pid"], signal.SIGKILL)
    assert driver.wait(30) == 1  # it raises
    nothing_is_left(tmp_path)
