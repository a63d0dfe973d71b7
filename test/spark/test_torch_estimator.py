"""TorchEstimator and TorchModel, on real Spark."""

import numpy as np
import pytest
import torch
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors, VectorUDT
from pyspark.sql.types import DoubleType

from horovod.spark.common.backend import Backend
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path))


def linear(inputs=2, outputs=1):
    torch.manual_seed(7)
    model = torch.nn.Linear(inputs, outputs)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.05)}


def plane(spark, rows=101):
    """y = 2a - b + 1, with a row whose number no process shares evenly."""
    made = np.random.default_rng(3).normal(size=(rows, 2))
    return spark.createDataFrame(
        [(Vectors.dense(row), float(2 * row[0] - row[1] + 1), i % 5 == 0) for i, row in enumerate(made)],
        ["features", "y", "is_validation"],
    )


def estimator(where, **params):
    given = {
        "loss": torch.nn.functional.mse_loss,
        "feature_cols": ["features"],
        "label_cols": ["y"],
        "store": where,
        "num_proc": 2,
        "batch_size": 8,
        "epochs": 6,
        "verbose": 0,
        "random_seed": 1,
        "partitions_per_process": 2,
        **params,
    }
    return TorchEstimator(**(given if "model" in given else {**linear(), **given}))


@pytest.mark.smoke
def test_a_line_is_learnt_and_predicted(spark, store, tmp_path):
    df = plane(spark)
    trained = estimator(store, validation="is_validation", metrics=[torch.nn.functional.l1_loss], run_id="first").fit(
        df
    )
    history = trained.getHistory()
    assert [told["epoch"] for told in history] == list(range(6))
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"] / 10
    assert set(history[0]["validation"]["metrics"]) == {"l1_loss"}
    assert history[-1]["validation"]["loss"] < 0.1
    rows = trained.transform(df).collect()
    assert trained.transform(df).schema["y__output"].dataType == DoubleType()
    assert np.mean([(row.y - row.y__output) ** 2 for row in rows]) < 0.1
    assert trained.getRunId() == "first"
    saved = torch.load(store.get_checkpoint_path("first")[len("file://") :])
    assert set(saved) == {"model", "optimizer"}
    assert saved["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.05)
    with torch.no_grad():
        assert torch.allclose(saved["model"]["weight"], trained.getModel().weight)

    trained.write().overwrite().save(str(tmp_path / "saved"))
    again = TorchModel.load(str(tmp_path / "saved")).setOutputCols(["guess"])
    assert again.getHistory() == history
    assert [row.guess for row in again.transform(df).collect()] == [row.y__output for row in rows]


def test_a_run_goes_on(spark, store):
    df = plane(spark)
    first = estimator(store, run_id="run", epochs=3).fit(df)
    second = estimator(store, run_id="run", epochs=1).fit_on_parquet(dataset_idx=0)
    assert second.getHistory()[0]["train"]["loss"] < first.getHistory()[-1]["train"]["loss"]


def test_classes_weights_and_loss_constructors(spark, store):
    made = np.random.default_rng(5).normal(size=(90, 2))
    df = spark.createDataFrame(
        [(float(a), float(b), int(a > 0) + int(b > 0), 1.0) for a, b in made], "a double, b double, k int, w double"
    )
    model = Two(3)
    trained = estimator(
        store,
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.05),
        loss=None,
        loss_constructors=[torch.nn.CrossEntropyLoss],
        feature_cols=["a", "b"],
        label_cols=["k"],
        input_shapes=[[-1, 1], [-1, 1]],
        label_shapes=[[-1]],
        sample_weight_col="w",
        backward_passes_per_step=2,
        validation=0.2,
        epochs=8,
    ).fit(df)
    assert trained.transform(df).schema["k__output"].dataType == VectorUDT()
    rows = trained.transform(df).collect()
    assert isinstance(rows[0]["k__output"], DenseVector) and rows[0]["k__output"].size == 3
    assert np.mean([int(np.argmax(row["k__output"])) == row.k for row in rows]) > 0.7


class Two(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, classes))

    def forward(self, a, b):
        return self.layers(torch.cat([a, b], dim=1))


def test_sparse_vectors_whole_labels_and_transformations(spark, store):
    df = spark.createDataFrame(
        [(SparseVector(4, [i % 4], [float(i % 3 + 1)]), i % 3) for i in range(64)], ["features", "y"]
    )

    trained = estimator(
        store,
        **linear(4),
        compress_sparse_cols=True,
        transformation_fn=lambda rows: rows.assign(y=rows.y * 2),
        transformation_edit_fields=[("y", np.float32, (), False)],
        train_minibatch_fn=noting,
        epochs=30,
    ).fit(df)
    out = trained.transform(df)
    assert out.schema["y__output"].dataType == df.schema["y"].dataType
    assert {row.y__output for row in out.collect()} <= set(range(-1, 6))
    assert trained.getHistory()[-1]["train"]["loss"] < trained.getHistory()[0]["train"]["loss"]


def noting(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):
    assert inputs[0].shape[1] == 4
    optimizer.zero_grad()
    outputs, labels = transform_outputs(model(*inputs), labels)
    loss = loss_fn(outputs, labels, sample_weights)
    loss.backward()
    optimizer.step()
    return outputs, loss


class Here(Backend):
    """One process: this one."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model": None}, "needs the parameter model"),
        ({"loss": None}, "needs the parameter loss"),
        ({"label_cols": None}, "needs the parameter label_cols"),
        ({"store": None}, "needs the parameter store"),
        ({"backend": Here()}, 'At most one of parameters "backend" and "num_proc" may be specified'),
        ({"loss_constructors": [torch.nn.MSELoss]}, "At most one of"),
        ({"optimizer": torch.optim.SGD}, "a torch.optim.Optimizer of the model is needed"),
        ({"epochs": 0}, "epochs=0"),
        ({"callbacks": [print]}, "callbacks are for"),
        ({"categorical_cols": ["a"]}, "categorical_cols is for a data module"),
        ({"loss_weights": [1.0, 2.0]}, "loss_weights has 2 parts"),
        ({"input_shapes": [[-1, 3]]}, "column 'features' has 2 elements"),
        ({"feature_cols": ["nothing"]}, "no column 'nothing'"),
    ],
)
def test_refusals(spark, store, params, words):
    with pytest.raises(ValueError, match="(?s).*" + words.replace("(", r"\(")):
        estimator(store, **params).fit(plane(spark, 8))


def test_no_such_parameter():
    with pytest.raises(TypeError, match="no parameter 'modle'"):
        TorchEstimator(modle=1)


def test_setters_and_copies():
    one = TorchEstimator().setBatchSize(4).setTrainReaderNumWorker(3).setShufflingBufferSize(0).setUseGpu(False)
    assert (one.getBatchSize(), one.getTrainReaderNumWorker(), one.getShuffleBufferSize()) == (4, 3, 0)
    assert one.copy({one.epochs: 9}).getEpochs() == 9 and one.getEpochs() == 1


def test_an_empty_frame(spark, store):
    with pytest.raises(ValueError, match="no rows"):
        estimator(store).fit(plane(spark, 8).limit(0))


def test_a_saved_estimator_trains(spark, store, tmp_path):
    estimator(store).save(str(tmp_path / "estimator"))
    again = TorchEstimator.load(str(tmp_path / "estimator"))
    assert again.getBatchSize() == 8 and again.getStore().get_runs_path() == store.get_runs_path()
    history = again.fit(plane(spark)).getHistory()
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"] / 10


def numbers(spark, rows, label=float):
    return spark.createDataFrame([(Vectors.dense([i / rows, 1.0]), label(i)) for i in range(rows)], ["features", "y"])


def test_a_process_without_rows(spark, store):
    df = numbers(spark, 1)
    assert "y__output" in estimator(store, epochs=1).fit(df).transform(df).first()


def test_a_transformation_leaves_out_rows(spark, store):
    one = estimator(store, transformation_fn=lambda rows: rows[rows.y == 0], epochs=2, batch_size=4)
    history = one.fit(numbers(spark, 32)).getHistory()
    assert history[1]["train"]["loss"] < history[0]["train"]["loss"]
    none = one.copy({one.transformation_fn: lambda rows: rows[rows.y < 0]})
    with pytest.raises(RuntimeError, match="the transformation has left none"):
        none.fit_on_parquet(dataset_idx=0)


def test_whole_labels_of_a_regression(spark, store):
    history = estimator(store, label_cols=["y"]).fit(numbers(spark, 32, lambda i: i % 3)).getHistory()
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"]


def test_labels_of_another_shape_than_the_outputs(spark, store):
    df = numbers(spark, 16, lambda i: Vectors.dense([i, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match=r"label has the shape \(8, 3\), which does not fit .* \(8, 1\)"):
        estimator(store).fit(df)
