"""horovod.spark on executors of their own: processes that die, versions that differ, GPUs, and who sees the secret."""

import io
import json
import logging
import os
import urllib.request
from pathlib import Path

import functions
import pytest
from conftest import executors_folder, start_session

import horovod.spark
from horovod.spark.databricks import HorovodRunner

GPUS = '#!/bin/sh\necho \'{"name": "gpu", "addresses": ["4", "7"]}\'\n'


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """Two executors with two slots and two GPUs each, and with Spark's pages. Only the settings have the GPUs."""
    script = tmp_path_factory.mktemp("gpus") / "gpus.sh"
    script.write_text(GPUS)
    script.chmod(0o755)
    session = start_session(
        "local-cluster[2,2,1024]",
        executor_resource_gpu_amount=2,
        worker_resource_gpu_amount=2,
        worker_resource_gpu_discoveryScript=script,
        task_resource_gpu_amount=1,
        ui_enabled="true",
        ui_port=0,
        ui_showConsoleProgress="false",
        executorEnv_EXECUTORS="own",
    )
    yield session
    session.stop()


@pytest.mark.smoke
def test_four_ranks_in_two_executors(spark):
    results = horovod.spark.run(functions.place, num_proc=4)
    assert results == [(rank, 4, rank, 4, 0, 1) for rank in range(4)]  # both executors are on one host


def test_gpus_of_the_tasks(spark):
    def gpus():
        from horovod.spark.task import get_available_devices

        return os.environ.get("CUDA_VISIBLE_DEVICES", ""), get_available_devices(), os.environ["EXECUTORS"]

    # Both executors have GPUs 4 and 7: on one host of a real cluster these would be four.
    shown, own, executors = zip(*horovod.spark.run(gpus, num_proc=2))
    assert all(set(text.split(",")) <= {"4", "7"} for text in shown) and executors == ("own", "own")
    assert all(len(devices) == 1 for devices in own)
    by_local_rank = horovod.spark.run(gpus, num_proc=2, env={"HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX": "1"})
    assert [(text, devices) for text, devices, _ in by_local_rank] == [("", []), ("", [])]


def test_nobody_sees_the_secret(spark):
    def look():
        import horovod.torch as hvd

        hvd.init()
        key = os.environ["HOROVOD_SECRET_KEY"]
        seen = []
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    if key.encode() in (process / name).read_bytes():
                        seen.append(f"{process}/{name}")
                except OSError:
                    continue
        hvd.barrier()
        return key, seen

    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("horovod.spark").addHandler(handler)
    (key, seen), (same, _) = horovod.spark.run(look, num_proc=2)
    logging.getLogger("horovod.spark").removeHandler(handler)
    assert key == same and seen == [] and key not in said.getvalue()
    assert key not in str(spark.sparkContext.getConf().getAll())
    pages = spark.sparkContext.uiWebUrl + f"/api/v1/applications/{spark.sparkContext.applicationId}"
    names = []
    for page in ("environment", "jobs", "stages", "allexecutors"):
        with urllib.request.urlopen(f"{pages}/{page}") as answer:
            text = answer.read().decode()
        assert key not in text
        if page in ("jobs", "stages"):
            names += [entry.get("description", "") for entry in json.loads(text)]
    assert "horovod.spark.run: look, 2 processes" in names
    logs = list(executors_folder(spark).rglob("std*"))
    assert logs and not any(key in log.read_text(errors="replace") for log in logs)


def test_a_killed_executor_is_named(spark):
    with pytest.raises(RuntimeError, match=r"Process name: rank \d .*in executor \d on .*\nExit code: none: Spark has"):
        horovod.spark.run(functions.fail, ("executor",), num_proc=4)
    assert len(horovod.spark.run(functions.place, num_proc=4)) == 4  # Spark has started another one


def test_another_gorovod_is_named(spark, monkeypatch):
    monkeypatch.setattr("horovod.__version__", "0.0.1")
    with pytest.raises(
        RuntimeError, match=r"executor \d on .* has horovod .* \(the driver has 0\.0\.1\).*Install the same"
    ):
        horovod.spark.run(functions.place, num_proc=2)


def test_another_python_is_named(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.9")  # what the driver tells of itself
    with pytest.raises(
        RuntimeError, match=r"executor \d on \S+ has another Python than the driver: .*Install the same"
    ):
        horovod.spark.run(functions.place, num_proc=2)


def test_horovod_runner(spark, capfd):
    def main(base):
        import horovod.torch as hvd

        hvd.init()
        print("step of", hvd.rank(), flush=True)
        return base + hvd.size()

    assert HorovodRunner(np=2).run(main, base=10) == 12
    assert HorovodRunner(np=-2).run(main, base=20) == 22
    assert "[1]<stdout>:step of 1" in capfd.readouterr().out  # of the second
    with pytest.raises(ValueError, match="driver_log_verbosity"):
        HorovodRunner(np=2, driver_log_verbosity="loud")
    for np in (None, "2", True, 2.0):
        with pytest.raises(TypeError, match="np=.*a whole number is needed"):
            HorovodRunner(np=np)


def test_too_few_slots_in_time(spark, caplog):
    from horovod.runner.common.util.timeout import TimeoutException

    with pytest.raises(TimeoutException, match=r"^Timed out waiting for 9 free slots at once. Spark has 4 slots: exec"):
        horovod.spark.run(functions.place, num_proc=9, start_timeout=7)
    assert "waiting for 9 free slots at once. Spark has 4 slots: executor " in caplog.text
    assert len(horovod.spark.run(functions.place, num_proc=2)) == 2
