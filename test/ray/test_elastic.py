"""Elastic jobs of RayExecutor, on a cluster of one node."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from elastic_trains import check_commits, journals, trains

from horovod.ray import ElasticRayExecutor, RayExecutor

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("cluster")


def test_a_job_runs_to_its_end(tmp_path):
    executor = RayExecutor(min_workers=2, max_workers=2)
    executor.start(extra_env_vars={"SEEN": "yes"})
    logged = []
    results = executor.run(trains, args=[20, str(tmp_path)], callbacks=[logged.append])
    assert [r["rank"] for r in results] == [0, 1]
    assert {"step": 10, "size": 2} in logged
    check_commits(tmp_path, results, 20)
    assert executor.run(lambda: os.environ["SEEN"]) == ["yes", "yes"]
    executor.shutdown()


def dies_once(folder):
    def die(number, step):
        if number == "1" and step == 10:
            os.kill(os.getpid(), 9)

    return die


@pytest.mark.smoke
def test_survivors_go_on(tmp_path, caplog):
    executor = RayExecutor(min_workers=2, max_workers=3)
    executor.start()
    results = executor.run(trains, args=[150, str(tmp_path), 0.05, dies_once(tmp_path)])
    check_commits(tmp_path, results, 150)
    said = [r.message for r in caplog.records if r.name == "horovod.ray"]
    assert any("worker 1" in s and "has died" in s for s in said), said
    assert any("going on with 2 of 3 workers" in s for s in said), said
    found = journals(tmp_path)
    for survivor in (0, 2):  # one process from the beginning to the end
        assert len({e["pid"] for e in found[survivor]}) == 1
    assert sorted(r["worker"] for r in results) == [0, 2, 3], said
    executor.shutdown()


def test_the_cause_is_that_of_its_rank():
    def fails():
        import horovod.torch as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("no such file: x.csv")
        hvd.allreduce(__import__("torch").ones(1), name="never")

    executor = RayExecutor(min_workers=2, max_workers=2)
    executor.start()
    with pytest.raises(
        RuntimeError, match="one or more processes exited with non-zero status.*rank 1.*x.csv"
    ) as failed:
        executor.run(fails)
    assert isinstance(failed.value.__cause__, ValueError)
    assert failed.value.rank == 1
    assert "in fails" in str(failed.value.__cause__)


def test_a_dead_workers_last_lines_are_in_the_error():
    def dies():
        import horovod.torch as hvd

        hvd.init()
        if hvd.rank() == 1:
            print("the disk is full", file=sys.stderr, flush=True)
            os.kill(os.getpid(), 9)
        hvd.allreduce(__import__("torch").ones(1), name="never")

    executor = RayExecutor(min_workers=2, max_workers=2)
    executor.start()
    with pytest.raises(RuntimeError, match="(?s)rank 1: worker 1 .*The last lines of its stderr:\n  the disk is full"):
        executor.run(dies)


def test_the_older_executor(tmp_path):
    settings = ElasticRayExecutor.create_settings(min_num_proc=1, max_num_proc=2)
    executor = ElasticRayExecutor(settings, env_vars={"SEEN": "yes"})
    executor.start()
    assert executor.run(lambda: os.environ["SEEN"]) == ["yes", "yes"]


def test_too_few_resources(caplog):
    executor = RayExecutor(min_workers=9, elastic_timeout=7)
    executor.start()
    with pytest.raises(TimeoutError, match="(?s)Placement group creation timed out.*at least 9 workers.*CPU: 4"):
        executor.run(trains)
    assert any("waiting for room for 9 workers" in r.message for r in caplog.records)


def test_the_example(cluster):
    address = ["--address", cluster.address_info["address"]]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/ray_elastic.py"), *address, "--steps", "3000"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "3 workers have come to the end" in done.stdout
    assert "going on with 2 of 3 workers" in done.stderr
    assert "worker 3 has joined" in done.stderr
