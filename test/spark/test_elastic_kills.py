"""Workers and executors of an elastic job are killed at random moments: no hang, no commit lost.

KILLS is the number of workers to kill (3 by default). SEED=N repeats a run's choices.
"""

import collections
import os
import random
import signal
import threading
import time

import functions
import pytest
from conftest import start_session
from elastic_trains import check_commits, journals, trains

import horovod.spark
from horovod.spark import _cluster, conf

KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", str(time.time_ns() % 1_000_000)))


@pytest.fixture(scope="module")
def spark():
    """Three executors with a slot each."""
    session = start_session("local-cluster[3,1,1024]", task_maxFailures=conf.SPARK_CONF_MAX_INT)
    yield session
    session.stop()


class Killer(threading.Thread):
    """Kills workers that train, one of which must always live on with the state; then it creates the file ``enough``.

    ``victims`` gives the processes to kill in order to kill a worker, by the worker's process.
    """

    def __init__(self, folder, enough, kills, victims=lambda pid: [pid]):
        super().__init__()
        self.folder, self.enough, self.kills, self.victims = folder, enough, kills, victims
        self.random = random.Random(SEED)
        self.phases = collections.Counter()
        self.resumed = []  # seconds from a kill to the next commit of a survivor
        self.killed = set()
        self.trouble = ""

    def run(self):
        try:
            last = 0.0
            for _ in range(self.kills):
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
            self.enough.touch()

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
                pid = entries[-1]["pid"]
                self.killed.add(pid)
                for victim in self.victims(pid):
                    os.kill(victim, signal.SIGKILL)
                self.phases[phase] += 1
                return time.time()
            time.sleep(0.02)
        raise AssertionError(f"there are no two workers that train: {self.now()}")

    def living(self):
        """The journals of workers that live and have the state."""
        return {
            number: entries
            for number, entries in journals(self.folder).items()
            if entries
            and entries[-1]["pid"] not in self.killed
            and any(e["phase"] == "committed" for e in entries)
            and os.path.exists(f"/proc/{entries[-1]['pid']}")
        }

    def await_commit(self, last):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            after = [self.commit_after(entries, last) for entries in journals(self.folder).values()]
            if any(after):
                self.resumed.append(min(filter(None, after)) - last)
                return
            time.sleep(0.02)
        raise AssertionError(f"no commit within 120 s of a kill: {self.now()}")

    def commit_after(self, entries, last):
        """When a survivor has made its first commit in a world that was formed after the kill; 0.0 if it has not."""
        formed = False
        for e in entries:
            if e["pid"] not in self.killed and e["at"] > last:
                formed = formed or e["phase"] == "train"
                if formed and e["phase"] == "committed":
                    return e["at"]
        return 0.0

    def now(self):
        return {number: entries[-1] for number, entries in journals(self.folder).items() if entries}


def job(folder, kills, **more):
    enough = folder / "enough"
    killer = Killer(folder, enough, kills, **more)
    killer.start()
    kwargs = {"folder": str(folder), "enough": str(enough)}
    results = horovod.spark.run_elastic(
        trains, args=(10**6,), kwargs=kwargs, num_proc=3, min_num_proc=1, stderr=open(os.devnull, "w")
    )
    killer.join()
    resumed = sorted(killer.resumed)
    print(
        f"\nseed {SEED}: {kills} kills in {dict(killer.phases)}; to a survivor's next commit: median "
        f"{resumed[len(resumed) // 2]:.2f} s, most {resumed[-1]:.2f} s"
        if resumed
        else ""
    )
    assert not killer.trouble, f"seed {SEED}: {killer.trouble}"
    check_commits(folder, results)


def test_workers_are_killed_at_random(spark, tmp_path):
    job(tmp_path, KILLS)


def test_executors_are_killed(spark, tmp_path):
    killed, noticed, over = [], [], threading.Event()

    def victims(pid):
        killed.append(time.time())
        return [functions.executor_of(pid)]

    def watch_spark():
        """Note when Spark itself has one executor fewer."""
        before = {executor.id for executor in _cluster.executors(spark.sparkContext)}
        while not over.wait(0.02):
            now = {executor.id for executor in _cluster.executors(spark.sparkContext)}
            if before - now:
                noticed.append(time.time())
            before = now

    watcher = threading.Thread(target=watch_spark)
    watcher.start()
    try:
        job(tmp_path, max(1, KILLS // 10), victims=victims)
    finally:
        over.set()
        watcher.join()
    print("Spark has noticed after", ", ".join(f"{n - k:.2f} s" for k, n in zip(killed, noticed)))
