"""TorchEstimator and TorchModel, on real Spark."""

import io
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors, VectorUDT
from pyspark.sql.types import DoubleType

from horovod.spark.common import datamodule
from horovod.spark.common.backend import Backend
from horovod.spark.common.datamodule import DataModule
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel, minibatch
from horovod.spark.torch.datamodule import PetastormDataModule

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path))


def linear(inputs=2, outputs=1):
    torch.manual_seed(7)
    model = torch.nn.Linear(inputs, outputs)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.05)}


def plane(spark, rows=101):
    """y = 2a - b + 1, in a number of rows that the processes cannot share evenly."""
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


class Foreign:
    """A backend that is derived from nothing, of this process alone."""

    def run(self, fn, args=(), kwargs={}, env={}):  # noqa: B006
        return [fn(*args, **kwargs)]

    def num_processes(self):
        return 1


class Tall(torch.nn.Linear):
    """Takes rows of the shape (1, 2) alone."""

    def forward(self, features):
        assert features.shape[1:] == (1, 2), features.shape
        return super().forward(features).flatten(1)


def test_shapes_of_rows_and_a_backend_of_any_class(spark, store):
    """A shape without -1 is that of a row, in the training and in transform."""
    torch.manual_seed(7)
    model = Tall(2, 1)
    trained = estimator(
        store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        input_shapes=[[1, 2]],
        label_shapes=[[1]],
        num_proc=None,
        backend=Foreign(),
    ).fit(plane(spark))
    assert trained.getHistory()[-1]["train"]["loss"] < 0.1 < trained.getHistory()[0]["train"]["loss"]
    guesses = trained.transform(plane(spark, 8)).collect()
    assert all(abs(row.y__output - row.y) < 0.5 for row in guesses)


@pytest.mark.parametrize(
    ("given", "lacks"),
    [
        (object(), "has no run and no num_processes"),
        (SimpleNamespace(run=print, num_processes=2), "has no num_processes"),
        (Foreign, "is a class, not an object of it"),
    ],
)
def test_what_is_no_backend(store, given, lacks):
    with pytest.raises(TypeError, match=f"{lacks}: an object with run and num_processes is needed"):
        estimator(store, num_proc=None, backend=given)


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
        ({"num_proc": 0}, "num_proc=0: at least 1"),
        ({"val_batch_size": 0}, "val_batch_size=0"),
        ({"train_steps_per_epoch": 0}, "train_steps_per_epoch=0"),
        ({"run_id": "../of/others"}, "run_id='../of/others': it must be a name"),
        ({"run_id": ".."}, "run_id='..': it must be a name"),
        ({"callbacks": [print]}, "callbacks are for"),
        ({"categorical_cols": ["a"]}, "categorical_cols is for a data module"),
        ({"loss_weights": [1.0, 2.0]}, "loss_weights has 2 parts"),
        ({"input_shapes": [[-1, 3]]}, "column 'features' has 2 elements"),
        ({"feature_cols": ["nothing"]}, "no column 'nothing'"),
        ({"random_seed": -1}, "random_seed=-1: a number from 0"),
        ({"random_seed": 2**70}, "random_seed="),
        ({"run_id": ""}, "run_id='': it must be a name"),
        ({"run_id": "a\0b"}, "it must be a name"),
        ({"run_id": "x" * 300}, "has 300 characters: at most 128"),
        ({"sample_weight_col": ""}, "sample_weight_col='': the name of a column"),
        ({"shuffle_buffer_size": -1}, "shuffle_buffer_size=-1: at least 0"),
        ({"reader_pool_type": "x"}, "reader_pool_type='x': only 'thread'"),
        ({"loss": "mse"}, "loss has 'mse', which cannot be called"),
        ({"loss": None, "loss_constructors": [1]}, "loss_constructors has 1, which cannot be called"),
        ({"metrics": ["accuracy"]}, "metrics has 'accuracy', which cannot be called"),
        ({"loss_weights": [float("nan")]}, "finite numbers are needed"),
        ({"input_shapes": [2]}, "a shape for each of feature_cols is needed, that of a row, such as"),
        ({"input_shapes": [[-1, -1]]}, "a shape for each of feature_cols is needed, that of a row, such as"),
        ({"input_shapes": [[0, 2]]}, "a shape for each of feature_cols is needed, that of a row, such as"),
        ({"input_shapes": [[3]]}, "column 'features' has 2 elements in each row"),
        ({"input_shapes": ["-1"]}, "a shape for each of feature_cols is needed, that of a row, such as"),
        ({"input_shapes": []}, "input_shapes has 0 shapes, but feature_cols has 1 columns"),
        ({"label_shapes": [[-1, None]]}, "a shape for each of label_cols is needed, that of a row, such as"),
        ({"transformation_edit_fields": ["y"]}, "transformation_edit_fields has 'y': (name, type of numpy"),
        ({"transformation_edit_fields": [("y", "float31", (), False)]}, "type of numpy"),
        (linear(2) | {"model": torch.nn.Linear(2, 1)}, "the optimizer has parameters that are not the model's"),
    ],
)
def test_refusals(spark, store, params, words):
    with pytest.raises(ValueError, match="(?s).*" + re.escape(words)):
        estimator(store, **params).fit(plane(spark, 8))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("'a'", "string"),
        ("current_date()", "date"),
        ("array(array('a'))", "string"),
        ("map('a', 1)", "map<string,int>"),
        ("null", "void"),
    ],
)
def test_columns_without_numbers(spark, store, kind, told):
    df = plane(spark, 8).selectExpr("y", f"{kind} as x")
    for params in ({"feature_cols": ["x"]}, {"feature_cols": ["y"], "sample_weight_col": "x"}):
        with pytest.raises(ValueError, match=f"the column 'x' has values of the type {told}, of which no tensor"):
            estimator(store, **params).fit(df)
    assert not store.exists(store.get_train_data_path(0))


def test_files_without_numbers(spark, store):
    plane(spark, 8).selectExpr("features", "string(y) as y").write.parquet(store.get_train_data_path())
    with pytest.raises(ValueError, match="the column 'y' has values of the type string"):
        estimator(store).fit_on_parquet()


def test_files_with_nulls(spark, store):
    df = plane(spark, 8).selectExpr("if(y > 0, features, null) as features", "if(y > 0, null, y) as y")
    df.write.parquet(store.get_train_data_path())
    there = df.filter("y is null").count()
    with pytest.raises(ValueError, match=f"{8 - there} in the column 'features', {there} in the column 'y'"):
        estimator(store).fit_on_parquet()
    df.write.parquet(store.get_val_data_path(1))
    plane(spark, 8).write.parquet(store.get_train_data_path(1))
    with pytest.raises(ValueError, match="in the column 'features'"):
        estimator(store).fit_on_parquet(dataset_idx=1)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"transformation_fn": lambda rows: None}, "transformation_fn returned NoneType: a pandas.DataFrame"),
        ({"transformation_fn": lambda rows: rows.drop(columns="y")}, "a batch has no column 'y', only features"),
        ({"transformation_removed_fields": ["a"]}, "transformation_removed_fields has 'a', but the rows have no such"),
        ({"transformation_edit_fields": [("a", "f4", (), False)]}, "transformation_edit_fields has 'a', but the rows"),
        ({"transformation_edit_fields": [("features", "f4", (3,), False)]}, "transformation_edit_fields: the column"),
        ({"train_minibatch_fn": lambda *_: None}, "train_minibatch_fn returned None: (outputs, loss) is needed"),
        ({"data_module": dict}, "made dict: a DataModule is needed"),
    ],
)
def test_what_a_users_function_gives_wrongly(spark, store, params, words):
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        estimator(store, backend=Here(), num_proc=None, **params).fit(plane(spark, 8))


class Same(DataModule):
    """A user's data module, which is told how many batches to give."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def train_data(self):
        batch = {"features": torch.ones(8, 2), "y": torch.ones(8)}
        return [batch] * self.steps_per_epoch_train

    def val_data(self):
        return [{"features": torch.ones(1, 2), "y": torch.ones(1)}] * self.steps_per_epoch_val


@pytest.mark.parametrize("steps", [None, 5])
def test_a_data_module_of_ones_own(spark, store, steps):
    params = {"num_proc": None, "backend": Here(), "data_module": Same, "train_steps_per_epoch": steps}
    trained = estimator(store, **params, validation="is_validation").fit(plane(spark, 20))
    last = trained.getHistory()[-1]
    assert last["train"]["loss"] < 0.01 and abs(last["validation"]["loss"]) < 0.01


@pytest.mark.parametrize(
    ("results", "size", "words"),
    [(None, 1, "run returned no results"), ([], 1, "run returned no results"), ([], 0, "num_processes() returned 0")],
)
def test_a_backend_that_gives_nothing(spark, store, results, size, words):
    class Nothing(Here):
        def run(self, fn, args=(), kwargs=None, env=None):
            return results

        def num_processes(self):
            return size

    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        estimator(store, backend=Nothing(), num_proc=None).fit(plane(spark, 8))


def test_models_that_cannot_transform(spark, store):
    df = plane(spark, 8)
    with pytest.raises(ValueError, match="TorchModel has no model: use what an estimator's fit"):
        TorchModel().transform(df)
    with pytest.raises(ValueError, match="TorchModel has no metadata"):
        TorchModel(model=torch.nn.Linear(2, 1), feature_columns=["features"], label_columns=["y"]).transform(df)
    made = estimator(store, backend=Here(), num_proc=None).fit(df)
    for model, rows, words in [
        (made, None, "a data frame of Spark is needed, not NoneType"),
        (made, df.drop("features"), "the data frame has no column 'features'; it has y"),
        (made, df.selectExpr("'a' as features"), "the column 'features' has values of the type string"),
        (made.copy().setLabelColoumns(["other"]), df, "label_columns has 'other', which was no column of the training"),
        (made.copy().setOutputCols(["a", "b"]), df, "there are 1 label columns, but 2 output columns"),
    ]:
        with pytest.raises((TypeError, ValueError), match=words):
            model.transform(rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: "", "is damaged: its metadata is not what save.. wrote"),
        (lambda told: json.dumps(told)[:300], "is damaged: its metadata is not what save.. wrote"),
        (lambda told: json.dumps([told]), "is damaged: its metadata is not what save.. wrote"),
        (lambda told: json.dumps({**told, "horovod": {}}), "is damaged: its metadata has no parameters"),
        (
            lambda told: json.dumps({**told, "horovod": {**told["horovod"], "pickle": "gAWV"}}),
            "cannot be loaded",
        ),
        (
            lambda told: json.dumps({**told, "horovod": {**told["horovod"], "version": "9.9", "plain": {"newer": 1}}}),
            "has the parameter 'newer', which TorchModel lacks: it was saved by version 9.9, and this is ",
        ),
    ],
)
def test_what_cannot_be_loaded(spark, tmp_path, change, words):
    folder = tmp_path / "saved"
    TorchModel(model=torch.nn.Linear(2, 1), label_columns=["y"]).save(str(folder))
    assert TorchModel.load(str(folder)).output_names() == ["y__output"]
    (part,) = (folder / "metadata").glob("part-*")
    told = json.loads(part.read_text())
    for sum_of_it in (folder / "metadata").glob(".*.crc"):
        sum_of_it.unlink()
    part.write_text(change(told))
    with pytest.raises(ValueError, match=words):
        TorchModel.load(str(folder))


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def checkpoint(model, kind=torch.optim.SGD):
    return saved({"model": model.state_dict(), "optimizer": kind(model.parameters(), lr=0.1).state_dict()})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "EOFError"),
        (checkpoint(torch.nn.Linear(2, 1))[:-200], "RuntimeError"),
        (b"hello", "If it is of another model"),
        (saved({"a": 1}), "KeyError: 'model'"),
        (checkpoint(torch.nn.Linear(5, 1)), "size mismatch for weight"),
        (checkpoint(torch.nn.Linear(2, 1), torch.optim.Adam), "its optimizer has no "),
    ],
)
def test_a_checkpoint_that_does_not_fit(spark, store, content, words):
    path = store.get_checkpoint_path("run").removeprefix("file://")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(ValueError, match=rf"(?s)cannot go on from the checkpoint file://.*/run/checkpoint: .*{words}"):
        estimator(store, backend=Here(), num_proc=None, run_id="run").fit(plane(spark, 8))


def test_runs_that_cannot_be_written(spark, store, tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(OSError, match="the run's folder file://.*/runs/run cannot be written: .*save_runs=False"):
        estimator(store, run_id="run").fit(plane(spark, 8))


def test_no_such_parameter():
    with pytest.raises(TypeError, match="no parameter 'modle'"):
        TorchEstimator(modle=1)


def test_setters_and_copies():
    one = TorchEstimator().setBatchSize(4).setTrainReaderNumWorker(3).setShufflingBufferSize(0).setUseGpu(False)
    assert (one.getBatchSize(), one.getTrainReaderNumWorker(), one.getShuffleBufferSize()) == (4, 3, 0)
    assert one.copy({one.epochs: 9}).getEpochs() == 9 and one.getEpochs() == 1


def test_none_is_the_default():
    one = TorchEstimator(batch_size=None, metrics=None).setEpochs(7).setEpochs(None).setShuffle(None)
    assert (one.getBatchSize(), one.getMetrics(), one.getEpochs(), one.getShuffle()) == (32, [], 1, True)
    one.setBatchSize(8).setRunId("a").setRunId(None)
    assert one.getRunId() is None and one.copy({one.batch_size: None}).getBatchSize() == 32
    assert TorchModel(label_columns=["y"]).setOutputCols(["a"]).setOutputCols(None).output_names() == ["y__output"]


@pytest.mark.parametrize(
    ("setter", "value", "words"),
    [
        ("setNumProc", "four", "num_proc"),
        ("setStore", "/tmp/a", r"store.*is not a Store: Store.create"),
        ("setBackend", 2, "backend.*is not a Backend"),
        ("setTransformationFn", "a", "transformation_fn.*'a' cannot be called"),
        ("setTransformationRemovedFields", "y", "transformation_removed_fields"),
        ("setTrainMinibatchFn", 1, "train_minibatch_fn"),
        ("setBatchSize", "8", "batch_size"),
    ],
)
def test_setters_refuse_what_is_of_another_type(setter, value, words):
    with pytest.raises(TypeError, match=words):
        getattr(TorchEstimator(), setter)(value)


def test_an_empty_frame(spark, store):
    with pytest.raises(ValueError, match="no rows"):
        estimator(store).fit(plane(spark, 8).limit(0))


def test_a_saved_estimator_trains(spark, store, tmp_path):
    estimator(store).save(str(tmp_path / "estimator"))
    again = TorchEstimator.load(str(tmp_path / "estimator"))
    assert again.getBatchSize() == 8 and again.getStore().get_runs_path() == store.get_runs_path()
    history = again.fit(plane(spark)).getHistory()
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"] / 10


def test_a_model_on_a_device_of_the_driver(spark, store):
    import torch._lazy.ts_backend

    torch._lazy.ts_backend.init()  # a device that the executors lack, as the driver's GPU may be
    model = torch.nn.Linear(2, 1).to("lazy")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model(torch.ones(3, 2, device="lazy")).sum().backward()
    optimizer.step()  # which makes a state there
    trained = estimator(store, model=model, optimizer=optimizer, validation=0.2).fit(plane(spark))
    history = trained.getHistory()
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"]
    assert model.weight.device.type == trained.getModel().weight.device.type == "lazy"
    rows = trained.transform(plane(spark, 8)).collect()
    mine = trained.getModel().cpu()(torch.tensor([row.features.toArray() for row in rows]).float())
    assert [row.y__output for row in rows] == pytest.approx(mine.flatten().tolist())


def test_a_model_without_values(store):
    model = torch.nn.Linear(2, 1, device="meta")
    with pytest.raises(ValueError, match="weight is on the device meta"):
        estimator(store, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)).fit_on_parquet()


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


class Normal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))

    def forward(self, features):
        assert not self.training or len(features) > 1
        return self.layers(features)


def test_batch_normalization_and_a_row_left_over(spark, store):
    model = Normal()
    params = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.05), "batch_size": 4}
    history = estimator(store, **params, validation="is_validation").fit(plane(spark, 12)).getHistory()  # 4 and 5 rows
    assert np.isfinite([told[part]["loss"] for told in history for part in ("train", "validation")]).all()
    one = estimator(store, **params, num_proc=None, backend=Here(), epochs=1).fit(plane(spark, 5))
    assert "y__output" in one.transform(plane(spark, 5)).first()


def weights_of(trained):
    return trained.getModel().weight.detach().flatten().tolist()


def test_weights_of_rows_in_arrays(spark, store):
    df = plane(spark, 24).selectExpr("features", "y", "abs(y) + 1 as w", "array(abs(y) + 1) as ws")
    df.write.parquet(store.get_train_data_path())
    found = []
    for column in ("w", "ws"):
        given = estimator(store, backend=Here(), num_proc=None, sample_weight_col=column)
        found.append(weights_of(given.fit_on_parquet()))
    assert found[0] == found[1]
    df = df.selectExpr("features", "y", "array(1D, 2D, 3D) as ws")
    with pytest.raises(ValueError, match="sample_weight_col='ws': the column has 3 numbers in each row, not one"):
        estimator(store, sample_weight_col="ws").fit(df)
    with pytest.raises(RuntimeError, match=r"weights have the shape \(8, 3\): one number for each of its 8 rows"):
        estimator(store, sample_weight_col="ws", transformation_fn=lambda rows: rows).fit(df)


@pytest.mark.parametrize(
    ("rows", "batch", "passes", "epochs", "steps"),
    [
        (16, 8, 4, 1, [1]),  # fewer batches than a step has
        (48, 8, 2, 2, [2, 1, 2, 1]),
        (35, 4, 2, 1, [2, 2, 0.5]),  # one process has a batch more
    ],
)
def test_passes_that_make_no_whole_step(spark, store, rows, batch, passes, epochs, steps):
    df = spark.createDataFrame([(Vectors.dense([1.0, 2.0]), 3.0)] * rows, ["features", "y"])
    given = linear() | {"batch_size": batch, "backward_passes_per_step": passes, "epochs": epochs}
    given["optimizer"].param_groups[0]["lr"] = 0.005
    model, optimizer = (linear() | {"optimizer": None}).values()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for share in steps:
        optimizer.zero_grad()
        (
            torch.nn.functional.mse_loss(model(torch.tensor([[1.0, 2.0]])).flatten(), torch.tensor([3.0])) * share
        ).backward()
        optimizer.step()
    found = weights_of(estimator(store, **given).fit(df))
    assert found == pytest.approx(model.weight.detach().flatten().tolist(), abs=1e-6)


class Told(PetastormDataModule):
    """A user's data module that reads by gorovod's."""

    def train_data(self):
        assert (self.random_seed, self.train_reader_worker_count, self.val_reader_worker_count) == (1, 3, 4)
        assert self.steps_per_epoch_train == 3
        return super().train_data()


def test_a_data_module_by_name(spark, store):
    plane(spark, 24).drop("is_validation").coalesce(1).write.parquet(store.get_train_data_path())
    threads = {"train_reader_num_workers": 3, "val_reader_num_workers": 4}
    found = []
    for module in (None, PetastormDataModule, datamodule.PetastormDataModule, Told):
        given = estimator(store, backend=Here(), num_proc=None, data_module=module, **threads)
        found.append(weights_of(given.fit_on_parquet()))
    assert found == [found[0]] * 4


@pytest.mark.parametrize(
    ("kind", "shape", "found"),
    [
        ("f4", None, (8, 2)),
        ("f4", (None,), (8, 2)),
        ("f4", (1, 2), (8, 1, 2)),
        ("f4", (2, 1), (8, 2, 1)),
        ("f4", (None, 2), (8, 1, 2)),
    ],
)
def test_shapes_of_edited_columns(spark, store, kind, shape, found):
    def look(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):
        assert inputs[0].shape == found and labels[0].dtype == torch.int64
        return minibatch(model, optimizer, transform_outputs, loss_fn, [inputs[0].reshape(8, 2)], labels, None)

    edited = [("features", kind, shape, False), ("y", "i8", None, False)]
    given = estimator(store, backend=Here(), num_proc=None, transformation_edit_fields=edited, train_minibatch_fn=look)
    assert len(given.fit(plane(spark, 8)).getHistory()) == 6


def test_images_of_a_transformation(spark, store):
    made = np.random.default_rng(3).normal(size=(40, 16))
    df = spark.createDataFrame([(row.tolist(), float(row[:8].sum())) for row in made], ["image", "y"])
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 1))
    trained = estimator(
        store,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02),
        feature_cols=["image"],
        input_shapes=[[-1, 1, 4, 4]],
        transformation_edit_fields=[("image", np.float32, (1, 4, 4), False)],
        inmemory_cache_all=True,
        validation=0.2,
    ).fit(df)
    history = trained.getHistory()
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"] / 2
    assert "y__output" in trained.transform(df).first()


def test_two_trainings_of_one_run(spark, store):
    plane(spark, 24).write.parquet(store.get_train_data_path())

    class Nested(Here):
        def run(self, fn, args=(), kwargs=None, env=None):
            with pytest.raises(ValueError, match="run_id='run': another fit.. of this program trains this run now"):
                estimator(store, run_id="run").fit_on_parquet()
            estimator(store, backend=Here(), num_proc=None, run_id="other", epochs=1).fit_on_parquet()
            return super().run(fn, args, kwargs, env)

    for _ in range(2):
        estimator(store, backend=Nested(), num_proc=None, run_id="run").fit_on_parquet()
