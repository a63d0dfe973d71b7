"""What a training makes of the rows: seeds that repeat it, and files of other programs with types that Spark lacks."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from test_torch_estimator import estimator, linear, plane, store  # noqa: F401 - a fixture

from horovod.spark.common import util
from horovod.spark.common._training import Transformation
from horovod.spark.common.reader import ParquetReader


def test_a_seed_repeats_the_training(spark, store):  # noqa: F811
    def train(seed):
        trained = estimator(store, validation=0.3, random_seed=seed, epochs=2, **linear()).fit(plane(spark))
        util.clear_training_cache()
        return trained.getHistory(), trained.getModel().weight.tolist()

    assert train(5) == train(5)
    assert train(5) != train(6)


def test_unsigned_and_half_precision_columns(spark, store, tmp_path):  # noqa: F811
    folder = tmp_path / "intermediate_train_data"
    folder.mkdir()
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (64, 2), np.uint8)
    columns = {
        "pixels": pa.array(pixels.tolist(), pa.list_(pa.uint8())),
        "half": pa.array(chance.random(64).astype(np.float16)),
        "y": pa.array((pixels.sum(axis=1) // 128).tolist(), pa.uint16()),
    }
    parquet.write_table(pa.table(columns), folder / "one.parquet", row_group_size=16)
    model = Sum()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trained = estimator(store, model=model, optimizer=optimizer, feature_cols=["pixels", "half"]).fit_on_parquet()
    losses = [told["train"]["loss"] for told in trained.getHistory()]
    assert losses[-1] < losses[0] / 2
    rows = spark.createDataFrame([([3, 4], 0.5), ([200, 100], 0.25)], "pixels array<short>, half float")
    out = trained.transform(rows)
    assert out.schema["y__output"].dataType.simpleString() == "int"
    assert out.orderBy("half").collect()[0].y__output in (1, 2, 3)


class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, pixels, half):
        return self.layer(torch.cat([pixels / 255, half.reshape(-1, 1)], dim=1))


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        (None, (2, 3)),
        ((None, None), (2, 3)),
        ((None, 3), (2, 3)),
        ((3, 2), (3, 2)),
        ((None,), (6,)),
        ((None, 2, 1), (3, 2, 1)),
    ],
)
def test_lengths_that_an_edited_column_keeps(tmp_path, shape, found):
    values = np.arange(24, dtype=np.float64).reshape(4, 2, 3)
    parquet.write_table(pa.table({"x": values.tolist()}), tmp_path / "one.parquet", row_group_size=2)
    edited = Transformation(None, [("x", "f4", shape, False)], None)
    (batch,) = ParquetReader(str(tmp_path), transform_fn=edited, shuffle=False)
    assert batch["x"].dtype == np.float32
    assert (batch["x"] == values.reshape(4, *found)).all()
    (again,) = ParquetReader(str(tmp_path), transform_fn=lambda rows: edited(edited(rows)), shuffle=False)
    assert (again["x"] == batch["x"]).all()


def test_lengths_that_nothing_tells(tmp_path):
    parquet.write_table(pa.table({"x": np.zeros((4, 6)).tolist()}), tmp_path / "one.parquet")
    for shape, words in (
        ((None, None), r"'x': a row has the shape \[6\], and so \(None, None\) can leave one length open only"),
        ((4,), r"'x': cannot reshape array of size 6 into shape \(4,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            list(ParquetReader(str(tmp_path), transform_fn=Transformation(None, [("x", "f4", shape, False)], None)))
