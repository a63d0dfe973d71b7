"""A program that uses Spark Connect: its session has no SparkContext."""

import tempfile

import functions
import torch
from pyspark.ml.linalg import Vectors
from pyspark.sql import SparkSession

import horovod.spark
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator

session = SparkSession.builder.remote("local[4]").getOrCreate()


def talk():
    import horovod.torch as hvd

    hvd.init()
    print("hello from", hvd.rank())
    return hvd.size()


def fit():
    """Learn y = 2a, and predict it."""
    df = session.createDataFrame([(Vectors.dense([i / 64]), i / 32) for i in range(64)], ["x", "y"])
    model = torch.nn.Linear(1, 1)
    with tempfile.TemporaryDirectory() as folder:
        trained = TorchEstimator(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss=torch.nn.functional.mse_loss,
            feature_cols=["x"],
            label_cols=["y"],
            validation=0.2,
            store=Store.create(folder),
            num_proc=2,
            epochs=5,
            verbose=0,
        ).fit(df)
        return len(trained.getHistory()), trained.transform(df).where("y__output is not null").count()


print(horovod.spark.run(functions.place, args=(10,), num_proc=3), flush=True)
print(horovod.spark.run(talk, num_proc=2), flush=True)
print("fit:", fit(), flush=True)
for program in (
    lambda: horovod.spark.run(functions.fail, ("raise",), num_proc=2),
    lambda: horovod.spark.run(functions.fail, ("kill",), num_proc=2),
    lambda: horovod.spark.run_elastic(functions.place, num_proc=2),
    lambda: horovod.spark.run(functions.place),
    lambda: horovod.spark.run(functions.place, num_proc=9, start_timeout=8),
):
    try:
        print(program())
    except Exception as e:
        print(f"===== {type(e).__name__}: {e}", flush=True)
session.stop()
