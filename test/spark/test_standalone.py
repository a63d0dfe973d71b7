"""horovod.spark on a standalone master with workers that are processes of their own, some of which are killed."""

import os
import signal
import threading
import time

import functions
import numpy as np
import pytest
import torch
from conftest import start_session
from elastic_trains import check_commits, journals, trains
from standalone import Cluster, ancestors

import horovod.spark
from horovod.spark import conf
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    one = Cluster(tmp_path_factory.mktemp("cluster"))
    one.add_worker()
    one.add_worker()
    yield one
    one.close()


@pytest.fixture(scope="module")
def spark(cluster):
    session = start_session(cluster.url, task_maxFailures=conf.SPARK_CONF_MAX_INT)
    yield session
    session.stop()


def test_run(spark):
    # Each worker of Spark looks like a container of YARN, so there are two hosts.
    assert horovod.spark.run(functions.place, num_proc=2) == [(rank, 2, 0, 1, rank, 2) for rank in range(2)]


def test_an_estimator(spark, tmp_path):
    rows = np.random.default_rng(3).normal(size=(64, 2)).tolist()
    df = spark.createDataFrame([(a, b, 2 * a - b) for a, b in rows], ["a", "b", "y"])
    model = Plane()
    trained = TorchEstimator(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        loss=torch.nn.functional.mse_loss,
        feature_cols=["a", "b"],
        label_cols=["y"],
        store=Store.create(str(tmp_path)),
        num_proc=2,
        batch_size=8,
        epochs=5,
        verbose=0,
    ).fit(df)
    assert trained.getHistory()[-1]["train"]["loss"] < trained.getHistory()[0]["train"]["loss"] / 2
    assert trained.transform(df).count() == 64


class Plane(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, a, b):
        return self.layer(torch.stack([a, b], dim=1))


def test_an_executor_and_a_worker_of_spark_die_and_another_comes(spark, cluster, tmp_path):
    enough = tmp_path / "enough"
    killer = Killer(cluster, tmp_path, enough)
    killer.start()
    kwargs = {"folder": str(tmp_path), "enough": str(enough)}
    results = horovod.spark.run_elastic(trains, args=(10**6,), kwargs=kwargs, num_proc=2, min_num_proc=1)
    killer.join()
    assert killer.trouble == "" and len(results) == 2
    check_commits(tmp_path, results)


class Killer(threading.Thread):
    """Kills an executor, then a worker of Spark, then starts another; each time it waits for the ranks that train."""

    def __init__(self, cluster, folder, enough):
        super().__init__()
        self.cluster, self.folder, self.enough, self.trouble = cluster, folder, enough, ""

    def run(self):
        try:
            os.kill(functions.executor_of(self.training(2)[0]), signal.SIGKILL)
            self.training(1)
            ranks = self.training(2)
            next(w for w in self.cluster.workers if w.pid in ancestors(ranks[0])).kill()
            self.training(1)
            self.cluster.add_worker()
            self.training(2)
        except Exception as e:
            self.trouble = f"{type(e).__name__}: {e}"
        finally:
            self.enough.touch()

    def training(self, size):
        """The processes of ``size`` ranks that train together, once they do."""
        end = time.monotonic() + 100
        while time.monotonic() < end:
            sized = [[e for e in entries if "size" in e] for entries in journals(self.folder).values()]
            now = [entries[-1] for entries in sized if entries and entries[-1]["at"] > time.time() - 2]
            if len(now) == size and {e["size"] for e in now} == {size}:
                return [e["pid"] for e in now]
            time.sleep(0.02)
        raise AssertionError(f"no {size} ranks train within 100 s: {journals(self.folder)}")
