"""horovod.spark.run_elastic in one process of Spark: workers that fail, and come again."""

import os
import signal
import threading
import time

import functions
import pytest
from conftest import start_session
from elastic_trains import check_commits, journals, trains

import horovod.spark


@pytest.fixture(scope="module")
def spark():
    """A session whose tasks may fail, unlike those of local[3]."""
    session = start_session("local[3,1000]")
    yield session
    session.stop()


@pytest.mark.smoke
def test_results_by_rank(spark):
    results = horovod.spark.run_elastic(functions.place, args=(10,), num_proc=2)
    assert results == [(10 + rank, 2, 0, 1, rank, 2) for rank in range(2)]  # each task is a host of its own


@pytest.mark.smoke
def test_a_worker_is_killed_and_another_one_comes(spark, tmp_path):
    enough = tmp_path / "enough"
    thread = threading.Thread(target=kill_one, args=(tmp_path, enough))
    thread.start()
    kwargs = {"folder": str(tmp_path), "enough": str(enough)}
    results = horovod.spark.run_elastic(trains, args=(10**6,), kwargs=kwargs, num_proc=3, min_num_proc=2)
    thread.join()
    check_commits(tmp_path, results)
    assert [r["rank"] for r in results] == [0, 1, 2]
    sizes = [e["size"] for e in sum(journals(tmp_path).values(), []) if e["phase"] == "train"]
    assert sizes.count(3) >= 5  # three of the first world, and some of a later one


def kill_one(folder, enough):
    """Kill a worker that has made ten commits; have the job end once three train again."""
    victim = 0
    while not enough.exists():
        time.sleep(0.1)
        now = {n: entries[-1] for n, entries in journals(folder).items() if entries}
        if not victim:
            ready = [e for e in now.values() if e["phase"] == "committed" and e["step"] >= 10]
            if len(ready) == 3:
                victim = ready[1]["pid"]
                os.kill(victim, signal.SIGKILL)
        elif len([e for e in now.values() if e["pid"] != victim and e["phase"] in ("commit", "committed")]) == 3:
            enough.touch()


def test_all_workers_fail(spark):
    def bad():
        import horovod.torch as hvd

        hvd.init()
        raise ValueError("no data")

    # The second one fails, or a new one has begun by then.
    ends = "(all workers have failed|no worker is left)"
    with pytest.raises(RuntimeError, match=rf"Horovod detected that (.|\n)*{ends}(.|\n)*ValueError: no data"):
        horovod.spark.run_elastic(bad, num_proc=2, min_num_proc=1)


def test_bad_arguments(spark):
    with pytest.raises(ValueError, match="min_num_proc=3, num_proc=2, max_num_proc=2: they must not decrease"):
        horovod.spark.run_elastic(functions.place, num_proc=2, min_np=3)
    with pytest.raises(ValueError, match="num_proc=4, but this session .* has 3 slots"):
        horovod.spark.run_elastic(functions.place, num_proc=4)
    with pytest.raises(ValueError, match="elastic_timeout=0"):
        horovod.spark.run_elastic(functions.place, num_proc=2, elastic_timeout=0)
