"""horovod.spark.run in one process of Spark: results, output, failures, bad arguments."""

import io
import os
import re
import subprocess
import sys
import threading
import time

import functions
import pytest

import horovod.spark
from horovod.spark import _cluster, _rank, _refusal, _session
from horovod.spark._jobs import SparkJob
from horovod.spark.common.backend import SparkBackend


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
    with pytest.raises(ValueError, match="start_timeout='soon': a number of seconds is needed"):
        horovod.spark.run(functions.place, num_proc=2, start_timeout="soon")
    with pytest.raises(ValueError, match="start_timeout=nan"):
        horovod.spark.run(functions.place, num_proc=2, start_timeout=float("nan"))
    for file in ("/a/file", io.BytesIO()):
        with pytest.raises(TypeError, match="stdout=.*: an open file for text is needed"):
            horovod.spark.run(functions.place, num_proc=2, stdout=file)
    for env, words in [
        (["A=1"], "a dict of"),
        ({"A": None}, "None for A"),
        ({"A=B": 1}, "'A=B'"),
        ({"A": "\0"}, "'A'"),
    ]:
        with pytest.raises((TypeError, ValueError), match=f"env.*{words}"):
            horovod.spark.run(functions.place, num_proc=2, env=env)
    with pytest.raises(TypeError, match="num_proc=True: a whole number is needed"):
        horovod.spark.run(functions.place, num_proc=True)
    with pytest.raises(TypeError, match="args=3: a tuple of arguments is needed"):
        horovod.spark.run(functions.place, args=3, num_proc=2)
    with pytest.raises(TypeError, match=r"kwargs=\[3\]: a dict of arguments is needed"):
        horovod.spark.run(functions.place, kwargs=[3], num_proc=2)
    for given, words in [
        ({"args": "ab"}, "args='ab': a tuple"),
        ({"kwargs": {1: 2}}, "kwargs has the key 1"),
        ({"verbose": None}, "verbose=None: a whole number"),
        ({"verbose": float("nan")}, "verbose=nan: a whole number"),
        ({"executable": 5}, "executable=5: the path of a Python"),
        ({"nics": [""]}, r"nics=\[''\]: names of network interfaces"),
        ({"nics": 5}, "nics=5: names of network interfaces"),
    ]:
        with pytest.raises(TypeError, match=words):
            horovod.spark.run(functions.place, num_proc=2, **given)
    lock = threading.Lock()
    with pytest.raises(
        TypeError, match=r"hold cannot be sent to Spark's tasks: 'lock', to which .*hold refers, is <unl"
    ):

        def hold():
            return lock

        horovod.spark.run(hold, num_proc=2)


def test_bad_arguments_of_an_elastic_job(spark):
    with pytest.raises(ValueError, match="reset_limit=-1: at least 0 is needed"):
        horovod.spark.run_elastic(functions.place, num_proc=2, reset_limit=-1)
    for limit in ("x", 2.5, float("nan"), True):
        with pytest.raises(TypeError, match=f"reset_limit={limit!r}: a whole number is needed"):
            horovod.spark.run_elastic(functions.place, num_proc=2, reset_limit=limit)
    with pytest.raises(ValueError, match="GOROVOD_HEARTBEAT_SECONDS='soon': a number of seconds is needed"):
        horovod.spark.run_elastic(functions.place, num_proc=2, env={"GOROVOD_HEARTBEAT_SECONDS": "soon"})


def test_a_python_that_is_not_there_is_named(spark):
    with pytest.raises(RuntimeError, match=r"127 \(/no/python: No such file or directory\)"):
        horovod.spark.run(functions.place, num_proc=2, executable="/no/python")


def test_a_rank_that_cannot_load_the_function_names_its_python():
    with pytest.raises(RuntimeError, match=r"cloudpickle \d.* cannot load the function .*PYSPARK_PYTHON"):
        _rank.enter({}, [], b"of another cloudpickle")


def test_a_result_that_cannot_travel_is_named(spark):
    with pytest.raises(RuntimeError, match=r"sent back: the item 'a' of a dict is <unlocked .* cannot be pickled"):
        horovod.spark.run(lambda: {"a": threading.Lock()}, num_proc=2)
    with pytest.raises(RuntimeError, match="what rank 0 has returned cannot be loaded here: KeyError: 'gone'"):
        horovod.spark.run(OnlyThere, num_proc=2)


class OnlyThere:
    def __reduce__(self):
        return {}.pop, ("gone",)


def test_what_a_task_raises_is_in_the_error(spark):
    with pytest.raises(RuntimeError, match="none of the interfaces nope0 has an IPv4 address here") as raised:
        horovod.spark.run(functions.place, num_proc=2, nics="nope0")
    assert "Traceback" not in str(raised.value)


def test_a_job_ends_even_if_it_is_cancelled_before_spark_knows_it(spark):
    def sleeps():
        yield time.sleep(600)

    job = SparkJob(spark, "run", 2, "sleeps", sleeps, lambda *_: None)
    assert job.end(60)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def test_an_interrupt_of_a_call_to_java_is_an_interrupt():
    @_session.interruptible
    def calls():
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise OSError("Gateway must be connected")  # noqa: B904

    with pytest.raises(KeyboardInterrupt):
        calls()


def test_the_driver_says_that_spark_runs_the_tasks_already(spark, tmp_path):
    seen = tmp_path / "seen"

    def waits():
        until = time.monotonic() + 120
        while not seen.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return iter([])

    job = SparkJob(spark, "run", 2, "waits", waits, lambda *_: None)
    while not job.wait(0.01) and _cluster.running(spark.sparkContext, job.group) < 2:
        pass
    assert not job.wait(0)
    seen.touch()
    job.end(60)


def test_the_drivers_variables_are_not_handed_on(spark, monkeypatch):
    monkeypatch.setenv("OF_THE_DRIVER", "secret")
    backend = SparkBackend(2, env={"ASKED": "1", "CUDA_VISIBLE_DEVICES": "7"}, verbose=0)
    for run in (SparkBackend(2, verbose=0).run, backend.run, lambda fn: horovod.spark.run(fn, num_proc=2)):
        asked = "1" if run == backend.run else None
        seen = run(lambda: [os.environ.get(name) for name in ("OF_THE_DRIVER", "ASKED", "CUDA_VISIBLE_DEVICES")])
        assert seen == [[None, asked, None]] * 2


def test_without_num_proc_it_is_the_default_parallelism(spark):
    assert len(horovod.spark.run(os.getpid)) == 4


@pytest.mark.smoke
def test_two_jobs_share_the_slots(spark):
    """Each job needs three of the four slots, so one waits for the other."""
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


class Fails:
    def write(self, text):
        raise ZeroDivisionError("no screen")


@pytest.mark.parametrize("run", [horovod.spark.run, horovod.spark.run_elastic])
def test_a_file_that_fails_does_not_end_the_job(spark, caplog, run):
    def talk():
        print("hi")
        print("ho", flush=True)
        return 1

    out = io.StringIO()
    assert run(talk, num_proc=2, stdout=Fails()) == [1, 1]
    assert caplog.text.count("what the processes write to stdout is lost: ZeroDivisionError: no screen") == 1
    assert run(talk, num_proc=2, stdout=out) == [1, 1] and out.getvalue().count("hi") == 2


ENDED = """
import os, signal, time
from conftest import start_session
import horovod.spark
session = start_session("local[2]")
session.sparkContext._jsc.sc().stop()
try:
    horovod.spark.run(print, num_proc=2)
except RuntimeError as e:
    print(e)
session.stop()
session = start_session("local[2]")
session.sparkContext._gateway.proc.kill()
for run in (horovod.spark.run, horovod.spark.run_elastic):
    try:
        run(print, num_proc=2)
    except RuntimeError as e:
        print(e)
os._exit(0)
"""


def test_a_session_that_has_ended():
    program = [sys.executable, "-c", ENDED]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=120, cwd=os.path.dirname(__file__))
    words = [line.partition(":")[0].partition(". It")[0] for line in ran.stdout.splitlines()]
    ended = "the Java of this session does not answer"
    assert words == ["the SparkContext of this session has been stopped", ended, ended], ran.stderr


def test_a_session_whose_java_answers_with_an_error(spark, monkeypatch):
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.sql import SparkSession

    class Context:
        @property
        def _jsc(self):
            raise Py4JError("calling o9.isStopped. Trace:\npy4j.security.Py4JSecurityException: not whitelisted")

    assert not _session._is_stopped(Context())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: spark._jvm.java.util.ArrayList().get(5))
    with pytest.raises(Py4JJavaError, match="IndexOutOfBounds"):
        _session.active()


def test_advice_for_results_that_are_too_large():
    raised = _refusal.of(RuntimeError("Job aborted: java.lang.OutOfMemoryError: Java heap space"), 2)
    assert "Java heap space\nIf the processes return much, such as a large model, raise spark.driver.mem" in str(raised)


def test_no_session():
    program = "import horovod.spark\ntry:\n    horovod.spark.run(print)\nexcept Exception as e:\n    print(e)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120).stdout
    assert said.startswith("Could not find an active SparkContext, are you running in a PySpark session?")
