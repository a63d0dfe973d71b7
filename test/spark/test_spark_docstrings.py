"""Public functions for Spark tell their arguments and results, and their examples run."""

import importlib.util
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch
from functions import train

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import docstrings

from horovod.data import BaseDataLoader
from horovod.spark.common import backend, util
from horovod.spark.common.reader import ParquetReader
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator

MODULES = [
    "horovod.data",
    "horovod.spark",
    "horovod.spark.common.backend",
    "horovod.spark.common.datamodule",
    "horovod.spark.common.reader",
    "horovod.spark.common.store",
    "horovod.spark.common.util",
    "horovod.spark.data_loaders.pytorch_data_loaders",
    "horovod.spark.databricks",
    "horovod.spark.task",
    "horovod.spark.torch",
    "horovod.spark.torch.datamodule",
]
KERAS = ["horovod.spark.keras", "horovod.spark.keras.datamodule"]
LIGHTNING = ["horovod.spark.lightning", "horovod.spark.lightning.datamodule"]
MODULES += KERAS if importlib.util.find_spec("tensorflow") else []
MODULES += LIGHTNING if importlib.util.find_spec("pytorch_lightning") else []
MEMBERS = docstrings.of(MODULES)


@pytest.mark.smoke
@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_arguments_and_results(name):
    assert docstrings.lacks(name, MEMBERS[name]) == []


@pytest.fixture(scope="module")
def prepared(spark, tmp_path_factory):
    """The names that the examples use, among them four rows of x and y."""
    folder = tmp_path_factory.mktemp("examples")
    rows = pyarrow.table({"x": [0.0, 1.0, 2.0, 3.0], "y": [0, 1, 2, 3]})
    for name in ("train", "val"):
        (folder / name).mkdir()
        pyarrow.parquet.write_table(rows, folder / name / "rows.parquet")
    return {
        "BaseDataLoader": BaseDataLoader,
        "Store": Store,
        "df": spark.createDataFrame([(float(i), i) for i in range(4)], "x double, y bigint"),
        "reader": ParquetReader(str(folder / "train"), shuffle=False),
        "store": Store.create(str(folder / "store")),
        "train_dir": str(folder / "train"),
        "val_dir": str(folder / "val"),
        "SparkBackend": backend.SparkBackend,
        "TorchEstimator": TorchEstimator,
        "torch": torch,
        "train": train,
        "util": util,
    }


def of_framework(name):
    """More names that the examples for a framework use."""
    if ".keras" in name:
        import tensorflow as tf

        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return {"tf": tf, "model": model}
    if ".lightning" in name:
        import pytorch_lightning as pl

        settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        return {"trainer": pl.Trainer(max_epochs=1, accelerator="cpu", **settings), "line": line_of(pl)}
    return {}


def line_of(pl):
    class Line(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.ones(()))

        def training_step(self, batch, batch_idx):
            return (self.slope * batch["x"] - batch["y"]).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Line()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_examples(name, tmp_path, prepared):
    member = MEMBERS[name]
    names = {**prepared, **of_framework(name), member.__name__: member, name.rpartition(".")[2]: member}
    assert docstrings.fails(name, member, names, tmp_path) == ""
