"""horovod.spark.run in one process of Spark: results, output, failures, bad arguments."""

import io
import os
import re
import threading

import functions
import pytest

import horovod.spark


@pytest.mark.smoke
def test_results_by_rank(spark):
    results = horovod.spark.run(functions.place, args=(10,), num_proc=3)
    assert results == [(10 + rank, 3, rank, 3, 0, 1) for rank in range(3)]


@pytest.mark.smoke
def test_what_ranks_write_and_read(spark):
    def talk(word):
        import sys

        print(f"{word} {os.environ['HOROVOD_RANK']} {os.environ['OWN']}")
        print("no newline", end="", file=sys.stderr)
        return os.environ.get("HOROVOD_RANK")

    out, err = io.StringIO(), io.StringIO()
    assert horovod.spark.run(talk, ("hi",), num_proc=2, env={"OWN": 7}, stdout=out, stderr=err) == ["0", "1"]
    assert sorted(out.getvalue().splitlines()) == ["[0]<stdout>:hi 0 7", "[1]<stdout>:hi 1 7"]
    assert sorted(err.getvalue().splitlines()) == ["[0]<stderr>:no newline", "[1]<stderr>:no newline"]
    timed = io.StringIO()
    horovod.spark.run(talk, ("hi",), num_proc=1, env={"OWN": 7}, stdout=timed, prefix_output_with_timestamp=True)
    assert re.match(r"\w+ \w+ \d+ [\d:]+ \d{4}\[0\]<stdout>:hi 0 7\n", timed.getvalue())


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (
            "raise",
            r"Process name: rank 1 .*in executor driver on .*\nExit code: 1\nIt raised:\n(.*\n)+KeyError: 'batch 7'",
        ),
        ("exit", r"Process name: rank 1 .*\nExit code: 3\nThe last lines of its stderr:\n  the disk is full"),
        ("leave", r"rank 1 .* has ended with code 0, but without a result: the function must return"),
        ("kill", r"Process name: rank 1 .*\nExit code: -9 \(killed by SIGKILL\)"),
        ("task", r"Process name: rank 1 .*\nExit code: none: Spark has ended its task"),
    ],
)
def test_a_rank_fails(spark, how, says):
    with pytest.raises(RuntimeError, match=says) as caught:
        horovod.spark.run(functions.fail, (how,), num_proc=2)
    if how != "leave":
        assert "Horovod detected that one or more processes exited with non-zero status" in str(caught.value)
    assert horovod.spark.run(functions.place, num_proc=2)[1] == (1, 2, 1, 2, 0, 1)  # nothing is left of it


def test_a_rank_that_never_asks_the_others_is_ended(spark):
    def lonely():
        import time

        if os.environ["HOROVOD_RANK"] == "1":
            raise ValueError("no data")
        time.sleep(1000)

    with pytest.raises(RuntimeError, match="ValueError: no data"):
        horovod.spark.run(lonely, num_proc=2)


def test_bad_arguments(spark):
    with pytest.raises(TypeError, match="'train.py' is not callable"):
        horovod.spark.run("train.py", num_proc=2)
    with pytest.raises(ValueError, match=r"num_proc=9, but this session \(local\[4\]\) has 4 slots"):
        horovod.spark.run(functions.place, num_proc=9)
    with pytest.raises(ValueError, match="num_proc=0: at least 1"):
        horovod.spark.run(functions.place, num_proc=0)
    with pytest.raises(TypeError, match="num_proc='2'"):
        horovod.spark.run(functions.place, num_proc="2")
    with pytest.raises(ValueError, match="use_mpi makes no sense"):
        horovod.spark.run(functions.place, num_proc=2, use_mpi=True)
    with pytest.raises(ValueError, match="start_timeout=0"):
        horovod.spark.run(functions.place, num_proc=2, start_timeout=0)
    lock = threading.Lock()
    with pytest.raises(
        TypeError, match=r"hold cannot be sent to Spark's tasks: 'lock', to which .*hold refers, is <unl"
    ):

        def hold():
            return lock

        horovod.spark.run(hold, num_proc=2)


def test_without_num_proc_it_is_the_default_parallelism(spark):
    assert len(horovod.spark.run(os.getpid)) == 4


@pytest.mark.smoke
def test_two_jobs_share_the_slots(spark):
    """Each needs three of the four, so one waits for the other."""
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(horovod.spark.run(functions.place, (n,), num_proc=3)))
        for n in (10, 20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results[0][0] for results in found) == [10, 20]


def test_no_session():
    import subprocess
    import sys

    program = "import horovod.spark\ntry:\n    horovod.spark.run(print)\nexcept Exception as e:\n    print(e)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120).stdout
    assert said.startswith("Could not find an active SparkContext, are you running in a PySpark session?")
