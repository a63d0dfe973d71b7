"""Sparse tables in elastic jobs: workers die and join, and no row is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_elastic_jobs import done, run, sizes

PROGRAM = str(Path(__file__).resolve().parent / "elastic" / "tables.py")


@pytest.mark.parametrize(
    "where", [pytest.param(["--inside"], id="model"), pytest.param([], id="list", marks=pytest.mark.long)]
)
def test_rows_survive_a_death_and_move_to_a_newcomer(tmp_path, where):
    options = ["-np", "3", "--min-np", "2", "--max-np", "3", "-H", "localhost:4"]
    # Between two commits: the rows go back, and when the newcomer joins, they do not.
    args = [60, "--die", 1, 22, "--whole", 3, "--every", 7, *where]
    job = run(options, *args, env={"GOROVOD_CHECKPOINT_DIR": str(tmp_path)}, program=PROGRAM)
    assert job.returncode == 0, job.stdout
    assert sizes(job.stdout)[0] == [3, 2, 3], job.stdout
    assert done(job.stdout, 60) == [0, 2, 3], job.stdout
    assert "worker 0 from 21 as " in job.stdout and "worker 2 from 21 as " in job.stdout, job.stdout
    assert "outside: in an elastic job sparse table 'users' belongs to a state: pass it to one" in job.stdout
    kept = {name: sorted(os.listdir(tmp_path / "tables" / name)) for name in os.listdir(tmp_path / "tables")}
    assert len(kept) == 2 and all(1 < len(saves) < 5 for saves in kept.values()), kept
    assert all(name.startswith(("users-", "films-of-a-year-")) for name in kept), kept


def test_a_job_goes_on_from_a_disk_with_another_size(tmp_path):
    kept = {"GOROVOD_CHECKPOINT_DIR": str(tmp_path), "GOROVOD_CHECKPOINT_EVERY": "2"}
    job = run(["-np", "3", "--min-np", "3", "-H", "localhost:3"], 35, env=kept, program=PROGRAM)
    assert job.returncode == 0 and done(job.stdout, 35) == [0, 1, 2], job.stdout
    # The last commit that was written is an even one: of step 30. The one after it, of step 35, is on the disk, too.
    job = run(["-np", "2", "--min-np", "2", "-H", "localhost:2"], 45, env=kept, program=PROGRAM)
    assert job.returncode == 0 and done(job.stdout, 45) == [0, 1], job.stdout
    assert "worker 0 from 30 as 0 of 2" in job.stdout and "worker 1 from 30 as 1 of 2" in job.stdout, job.stdout


def test_tables_that_no_commit_could_save():
    job = run(["-np", "2", "--min-np", "1", "-H", "localhost:2"], 5, program=PROGRAM)
    assert job.returncode == 1, job.stdout
    assert "commits save the rows of sparse table 'users', whose ranks may die: set GOROVOD_CHECKPOINT" in job.stdout


def test_a_job_that_is_not_elastic_saves_its_commits_too(tmp_path):
    env = {**os.environ, "GOROVOD_CHECKPOINT_DIR": str(tmp_path)}
    horovodrun = os.environ.get("HOROVODRUN", str(Path(__file__).resolve().parents[2] / "build" / "horovodrun"))
    for steps, size in (20, 1), (30, 2):
        job = subprocess.run(
            [horovodrun, "-np", str(size), sys.executable, PROGRAM, str(steps)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env=env,
        )
        assert job.returncode == 0 and job.stdout.count(f"done: {steps} of {steps} steps") == size, job.stdout
    assert "from 20 as 0 of 2" in job.stdout, job.stdout
