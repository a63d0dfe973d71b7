"""Tests of horovod.spark, on real Spark: ``build/spark/bin/python -m pytest test/spark``.

A module shares one session, and leaves nothing behind.
"""

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

# A job in the background of a shell ignores Ctrl-C, and so would the tests of it and the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[2]
# The executors inherit it.
SEARCHED = [str(ROOT / "python"), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, SEARCHED))
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
if "SPARK_WORKER_DIR" not in os.environ:  # executors write there; programs of the tests inherit it
    os.environ["SPARK_WORKER_DIR"] = tempfile.mkdtemp(prefix="gorovod-spark-")
    atexit.register(shutil.rmtree, os.environ["SPARK_WORKER_DIR"], ignore_errors=True)
sys.path.insert(0, str(ROOT / "python"))


def start_session(master, **conf):
    """A session of Spark on this machine. ``conf`` has settings, with ``_`` for each dot."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Otherwise all later sessions would have the settings of the one that starts the JVM.
    SparkContext._ensure_initialized()
    builder = SparkSession.builder.master(master).appName("gorovod's tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.python.worker.faulthandler.enabled": "true",  # a crash tells its stack
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        **{f"spark.{name.replace('_', '.')}": str(value) for name, value in conf.items()},
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if master.startswith("local-cluster"):
        atexit.register(shutil.rmtree, executors_folder(session), ignore_errors=True)
    return session


def executors_folder(session):
    """Where the executors of a session of ``local-cluster`` write."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(home) / "work" / session.sparkContext.applicationId


@pytest.fixture(scope="module")
def spark():
    """A session whose driver runs four tasks at once, in one process."""
    session = start_session("local[4]")
    yield session
    session.stop()
