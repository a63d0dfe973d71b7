"""Wine on Spark: a LightningModule learns the kinds of wine of scikit-learn's small data set.

    pip install 'gorovod[spark]' pytorch-lightning scikit-learn
    python examples/spark/lightning_estimator.py

Takes a minute, most of it Spark's start. Needs Java.
"""

import argparse
import os
import sys
import tempfile

import pytorch_lightning as pl
import torch
from torch_estimator import wine


class Sommelier(pl.LightningModule):
    """Tells kinds of wine apart."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(13, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))

    def forward(self, features):
        return self.layers(features)

    def training_step(self, batch, batch_idx):
        return self._log("loss", batch)

    def validation_step(self, batch, batch_idx):
        self._log("val_loss", batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.005)

    def _log(self, name, batch):
        loss = torch.nn.functional.cross_entropy(self(batch["features"]), batch["kind"])
        self.log(name, loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--store", help="a folder that all hosts have, or s3://…; a temporary one without it")
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    from pyspark.sql import SparkSession

    from horovod.spark.common.store import Store
    from horovod.spark.lightning import TorchEstimator

    session = SparkSession.builder.master(f"local[{args.processes}]").appName("wine").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    train, test = wine(session).randomSplit([0.8, 0.2], seed=1)
    pl.seed_everything(1, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trained = TorchEstimator(
            model=Sommelier(),
            feature_cols=["features"],
            label_cols=["kind"],
            validation=0.1,
            store=Store.create(args.store or folder),
            num_proc=args.processes,
            batch_size=8,
            epochs=args.epochs,
            random_seed=1,
            callbacks=[pl.callbacks.EarlyStopping("val_loss", patience=5)],
            trainer_args={"gradient_clip_val": 5.0},
        ).fit(train)
    rows = trained.transform(test).collect()
    right = sum(int(row["kind__output"].toArray().argmax()) == row.kind for row in rows)
    session.stop()
    print(f"{right} of {len(rows)} wines that were not learnt are told apart: {right / len(rows):.3f}")


if __name__ == "__main__":
    main()
