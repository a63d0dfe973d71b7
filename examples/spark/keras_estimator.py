"""Wine on Spark: KerasEstimator learns the kinds of wine of scikit-learn's small data set.

    pip install 'gorovod[spark]' tensorflow scikit-learn
    python examples/spark/keras_estimator.py

Takes a minute or two, most of it the starts of Spark and TensorFlow. Needs Java.
"""

import argparse
import os
import sys
import tempfile

from torch_estimator import wine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--store", help="a folder that all hosts have, or s3://…; a temporary one without it")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    import tensorflow as tf
    from pyspark.sql import SparkSession

    from horovod.spark.common.store import Store
    from horovod.spark.keras import KerasEstimator

    session = SparkSession.builder.master(f"local[{args.processes}]").appName("wine").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    train, test = wine(session).randomSplit([0.8, 0.2], seed=1)
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((13,)),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(3, activation="softmax"),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        trained = KerasEstimator(
            model=model,
            optimizer=tf.keras.optimizers.Adam(0.005),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            feature_cols=["features"],
            label_cols=["kind"],
            validation=0.1,
            store=Store.create(args.store or folder),
            num_proc=args.processes,
            batch_size=8,
            epochs=args.epochs,
            random_seed=1,
            backend_env={},
        ).fit(train)
    rows = trained.transform(test).collect()
    right = sum(int(row["kind__output"].toArray().argmax()) == row.kind for row in rows)
    session.stop()
    print(f"{right} of {len(rows)} wines that were not learnt are told apart: {right / len(rows):.3f}")


if __name__ == "__main__":
    main()
