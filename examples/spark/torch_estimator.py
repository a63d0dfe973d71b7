"""Wine on Spark: TorchEstimator learns the kinds of wine of scikit-learn's small data set.

    pip install 'gorovod[spark]' torch scikit-learn
    python examples/spark/torch_estimator.py

Takes a minute, most of it Spark's start. Needs Java.
"""

import argparse
import os
import sys
import tempfile


def wine(session):
    """A data frame of 178 wines: the vector "features" of 13 numbers, and the label "kind", 0 to 2."""
    from pyspark.ml.linalg import Vectors
    from sklearn.datasets import load_wine

    found = load_wine()
    scaled = (found.data - found.data.mean(axis=0)) / found.data.std(axis=0)
    rows = [(Vectors.dense(row), int(kind)) for row, kind in zip(scaled, found.target)]
    return session.createDataFrame(rows, ["features", "kind"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--store", help="a folder that all hosts have, or s3://…; a temporary one without it")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    import torch
    from pyspark.sql import SparkSession

    from horovod.spark.common.store import Store
    from horovod.spark.torch import TorchEstimator

    session = SparkSession.builder.master(f"local[{args.processes}]").appName("wine").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    train, test = wine(session).randomSplit([0.8, 0.2], seed=1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(13, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    with tempfile.TemporaryDirectory() as folder:
        trained = TorchEstimator(
            model=model,
            optimizer=torch.optim.Adam(model.parameters(), lr=0.005),
            loss=torch.nn.CrossEntropyLoss(),
            feature_cols=["features"],
            label_cols=["kind"],
            label_shapes=[[-1]],
            validation=0.1,
            store=Store.create(args.store or folder),
            num_proc=args.processes,
            batch_size=8,
            epochs=args.epochs,
            random_seed=1,
        ).fit(train)
    rows = trained.transform(test).collect()
    right = sum(int(row["kind__output"].toArray().argmax()) == row.kind for row in rows)
    session.stop()
    print(f"{right} of {len(rows)} wines that were not learnt are told apart: {right / len(rows):.3f}")


if __name__ == "__main__":
    main()
