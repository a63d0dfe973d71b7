"""KerasEstimator and KerasModel, on real Spark."""

import json
import os
import zipfile

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import h5py  # noqa: E402
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors  # noqa: E402
from pyspark.sql.types import FloatType  # noqa: E402

from horovod.spark.common.backend import Backend  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402
from horovod.spark.keras import KerasEstimator, KerasModel  # noqa: E402


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path))


def line(inputs=2, outputs=1, activation=None):
    tf.keras.utils.set_random_seed(7)
    return tf.keras.Sequential([tf.keras.Input((inputs,)), tf.keras.layers.Dense(outputs, activation=activation)])


def plane(spark, rows=101):
    """y = 2a - b + 1, in a number of rows that the processes cannot share evenly."""
    made = np.random.default_rng(3).normal(size=(rows, 2))
    df = spark.createDataFrame(
        [(Vectors.dense(row), float(2 * row[0] - row[1] + 1), i % 5 == 0) for i, row in enumerate(made)],
        ["features", "y", "is_validation"],
    )
    return df.withColumn("y", df["y"].cast("float"))


def estimator(where, **params):
    given = {
        "model": line(),
        "optimizer": tf.keras.optimizers.SGD(0.05),
        "loss": "mse",
        "feature_cols": ["features"],
        "label_cols": ["y"],
        "store": where,
        "num_proc": 2,
        "batch_size": 8,
        "epochs": 6,
        "verbose": 0,
        "random_seed": 1,
        "partitions_per_process": 2,
        "backend_env": {},
    }
    return KerasEstimator(**{**given, **params})


@pytest.mark.smoke
def test_a_line_is_learnt_predicted_and_goes_on(spark, store, tmp_path):
    df = plane(spark)
    trained = estimator(store, validation="is_validation", metrics=["mae"], run_id="first").fit(df)
    history = trained.getHistory()
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(history)
    assert len(history["loss"]) == 6 and history["loss"][-1] < history["loss"][0] / 5
    out = trained.transform(df)
    assert out.schema["y__output"].dataType == FloatType()
    rows = out.collect()
    assert np.mean([(row.y - row.y__output) ** 2 for row in rows]) < 0.1
    trained.write().overwrite().save(str(tmp_path / "saved"))
    again = KerasModel.load(str(tmp_path / "saved")).setOutputCols(["guess"])
    assert [row.guess for row in again.transform(df).collect()] == pytest.approx([row.y__output for row in rows])
    for part in ("train", "validation"):
        assert logged(store, "first", part).items() >= {"epoch_loss": 6, "epoch_mae": 6}.items()
    more = estimator(store, run_id="first", epochs=1).fit_on_parquet(dataset_idx=0)
    assert more.getHistory()["loss"][0] < history["loss"][0] / 5


def logged(store, run_id, part):
    """How many values TensorBoard shows of each figure of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(os.path.join(store.get_logs_path(run_id)[len("file://") :], part)).Reload()
    return {tag: len(events.Tensors(tag)) for tag in events.Tags()["tensors"] if tag.startswith("epoch_")}


def test_classes_weights_and_the_best_epoch(spark, store):
    from horovod.tensorflow.keras.callbacks import BestModelCheckpoint

    made = np.random.default_rng(5).normal(size=(90, 2))
    df = spark.createDataFrame(
        [(SparseVector(2, [0, 1], row), int(row[0] > 0) + int(row[1] > 0), 1.0) for row in made],
        ["features", "k", "w"],
    )
    trained = estimator(
        store,
        model=line(outputs=3, activation="softmax"),
        optimizer=tf.keras.optimizers.Adam(0.05),
        loss="sparse_categorical_crossentropy",
        label_cols=["k"],
        sample_weight_col="w",
        compress_sparse_cols=True,
        backward_passes_per_step=2,
        tensorflow_dataset_prefetch_buffer_size=2,
        checkpoint_callback=BestModelCheckpoint(monitor="loss"),
        epochs=8,
    ).fit(df)
    rows = trained.transform(df).collect()
    assert isinstance(rows[0]["k__output"], DenseVector) and rows[0]["k__output"].size == 3
    assert np.mean([int(np.argmax(row["k__output"])) == row.k for row in rows]) > 0.6


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model": None}, "needs the parameter model"),
        ({"loss": None}, "needs the parameter loss"),
        ({"model": "a"}, "a tf.keras.Model is needed"),
        ({"feature_cols": ["features", "y"]}, "the model has 1 inputs"),
        ({"model": line(3)}, "column 'features' has 2 elements"),
    ],
)
def test_refusals(spark, store, params, words):
    with pytest.raises(ValueError, match=words):
        estimator(store, **params).fit(plane(spark, 8))


@pytest.mark.parametrize("loss", ["mse", tf.keras.losses.Huber(), tf.keras.losses.get("mae")])
def test_labels_of_another_size_than_the_outputs(spark, store, loss):
    df = spark.createDataFrame([(Vectors.dense([i, 1.0]), Vectors.dense([i, 2.0, 3.0])) for i in range(16)], ["x", "y"])
    with pytest.raises(RuntimeError, match=r"label has the shape \(None, 3\), which does not fit .* \(None, 1\)"):
        estimator(store, feature_cols=["x"], loss=loss, label_cols=["y"]).fit(df)


def test_a_loss_of_ones_own_may_take_any_label(spark, store):
    def first(label, output):
        return tf.reduce_mean((label[:, :1] - output) ** 2, axis=-1)

    df = spark.createDataFrame([(Vectors.dense([i, 1.0]), Vectors.dense([i, 2.0, 3.0])) for i in range(16)], ["x", "y"])
    trained = estimator(store, feature_cols=["x"], loss=first, label_cols=["y"], epochs=1).fit(df)
    assert len(trained.getHistory()["loss"]) == 1


def test_a_saved_estimator_trains_a_layer_of_python(spark, store, tmp_path):
    layers = [tf.keras.Input((2,)), tf.keras.layers.Lambda(lambda x: 1.0 * x), tf.keras.layers.Dense(1)]
    estimator(store, model=tf.keras.Sequential(layers)).save(str(tmp_path / "estimator"))
    trained = KerasEstimator.load(str(tmp_path / "estimator")).fit(plane(spark))
    assert trained.getHistory()["loss"][-1] < trained.getHistory()["loss"][0] / 5
    assert "y__output" in trained.transform(plane(spark, 8)).first()


def test_models_without_inputs_are_refused(store):
    with pytest.raises(ValueError, match="begin it with"):
        estimator(store, model=tf.keras.Sequential([tf.keras.layers.Dense(1)])).fit_on_parquet()


@pytest.mark.parametrize(("rows", "validation"), [(1, None), (5, "is_validation")])
def test_fewer_rows_than_processes(spark, store, rows, validation):
    trained = estimator(store, validation=validation, epochs=2).fit(plane(spark, rows))  # of five, one for validation
    assert len(trained.getHistory()["val_loss" if validation else "loss"]) == 2


def test_a_transformation_leaves_out_rows(spark, store):
    plane(spark, 32).coalesce(1).write.parquet(store.get_train_data_path())
    one = estimator(store, transformation_fn=lambda rows: rows[rows.y > 1.5])  # not the first
    history = one.fit_on_parquet().getHistory()
    assert history["loss"][-1] < history["loss"][0]
    none = one.copy({one.transformation_fn: lambda rows: rows[rows.y > 1e9]})
    with pytest.raises(RuntimeError, match="there are no rows: the transformation has left none"):
        none.fit_on_parquet()


class Here(Backend):
    """One process: this one."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


def here(where, **params):
    return estimator(where, **{"backend": Here(), "num_proc": None, "run_id": "run", **params})


def test_passes_that_make_no_whole_step(spark, store):
    params = {"optimizer": tf.keras.optimizers.SGD(0.01), "epochs": 1, "batch_size": 8}
    df = plane(spark, 8)
    once, thrice = (
        here(store, backward_passes_per_step=passes, run_id=None, **params).fit(df).getModel().get_weights()
        for passes in (1, 3)
    )
    for start, one, three in zip(line().get_weights(), once, thrice):
        assert np.allclose(three - start, 3 * (one - start), atol=1e-6) and not np.allclose(one, start)


@pytest.mark.parametrize("passes", [1, 2])
def test_what_goes_on(spark, store, tmp_path, passes):
    plane(spark, 32).write.parquet(store.get_train_data_path())
    layers = [tf.keras.layers.Lambda(lambda x: 1.0 * x), tf.keras.layers.Dense(1)]  # the first is code of Python
    params = {"model": tf.keras.Sequential([tf.keras.Input((2,)), *layers]), "backward_passes_per_step": passes}
    first = here(store, optimizer=tf.keras.optimizers.Adam(0.05), epochs=3, **params).fit_on_parquet()
    second = here(store, optimizer=tf.keras.optimizers.Adam(0.01), epochs=2, loss="mae", **params).fit_on_parquet()
    assert second.getHistory()["loss"][0] < first.getHistory()["loss"][0] ** 0.5
    with zipfile.ZipFile(tmp_path / "runs" / "run" / "checkpoint") as archive:
        compiled = json.loads(archive.read("config.json"))["compile_config"]
        with archive.open("model.weights.h5") as weights, h5py.File(weights, "r") as file:
            steps = int(file["optimizer/vars/0"][()])
    assert compiled["loss"] == "mae"
    assert compiled["optimizer"]["config"]["learning_rate"] == pytest.approx(0.01)
    assert steps == 5 * 4


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model": line(activation="relu")}, None),
        ({"model": tf.keras.Sequential([tf.keras.Input((2,)), *map(tf.keras.layers.Dense, (3, 1))])}, "its layers are"),
        ({"model": tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1, use_bias=False)])}, ""),
        ({"optimizer": tf.keras.optimizers.Adam()}, "its optimizer is SGD, that of the training Adam"),
        pytest.param(
            {"optimizer": tf.keras.optimizers.SGD(momentum=0.9)},
            "its optimizer has . variables, that of the training",
            marks=pytest.mark.skipif(
                tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16),
                reason="SGD of Keras 2 has momenta in any case",
            ),
        ),
        ({}, "BadZipFile"),
    ],
)
def test_a_checkpoint_of_another_model(spark, store, tmp_path, params, words):
    plane(spark, 16).write.parquet(store.get_train_data_path())
    here(store, epochs=1).fit_on_parquet()
    path = tmp_path / "runs" / "run" / "checkpoint"
    if words == "BadZipFile":
        path.write_bytes(path.read_bytes()[:500])
    before = path.read_bytes()
    if words is None:  # what has no values may differ
        assert here(store, epochs=1, **params).fit_on_parquet().getModel().layers[-1].activation.__name__ == "relu"
        return
    with pytest.raises(ValueError, match=rf"(?s)cannot go on from the checkpoint file://.*/run/checkpoint: .*{words}"):
        here(store, **params).fit_on_parquet()
    assert path.read_bytes() == before


def test_images_of_a_transformation(spark, store):
    made = np.random.default_rng(3).normal(size=(40, 16))
    df = spark.createDataFrame([(row.tolist(), float(row[:8].sum())) for row in made], "image array<float>, y float")
    tf.keras.utils.set_random_seed(7)
    layers = tf.keras.layers
    trained = here(
        store,
        model=tf.keras.Sequential([tf.keras.Input((4, 4, 1)), layers.Conv2D(2, 3), layers.Flatten(), layers.Dense(1)]),
        optimizer=tf.keras.optimizers.SGD(0.02),
        feature_cols=["image"],
        transformation_edit_fields=[("image", np.float32, (4, 4, 1), False)],
        inmemory_cache_all=True,
    ).fit(df)
    losses = trained.getHistory()["loss"]
    assert losses[-1] < losses[0] / 2
    assert "y__output" in trained.transform(df).first()


def first_two(rows):
    return rows.assign(features=[row[:2] for row in rows["features"]])


def test_a_transformation_changes_sizes(spark, store):
    df = plane(spark, 16).selectExpr("array(y, y * 2, 3) as features", "y")
    df.write.parquet(store.get_train_data_path())
    for edited in (None, [("features", "f4", (2,), False)], [("features", "f4", (None,), False)]):
        given = here(store, epochs=1, run_id=None, transformation_fn=first_two, transformation_edit_fields=edited)
        assert len(given.fit_on_parquet().getHistory()["loss"]) == 1
    for function, edited, words in (
        (None, None, "column 'features' has 3 elements"),
        (None, [("features", "f4", (None,), False)], "column 'features' has 3 elements"),
        (first_two, [("features", "f4", (1, 4), False)], "column 'features' has 4 elements"),
    ):
        given = here(store, transformation_fn=function, transformation_edit_fields=edited)
        with pytest.raises(ValueError, match=words):
            given.fit_on_parquet()


def test_weights_of_rows_in_arrays(spark, store, monkeypatch):
    plane(spark, 16).selectExpr("features", "y", "y + 9 as w", "array(y + 9) as ws").write.parquet(
        store.get_train_data_path()
    )
    seen = []
    fit = tf.keras.Model.fit

    def look(model, rows, **further):
        seen.append(rows.element_spec[2].shape.as_list())
        return fit(model, rows, **further)

    monkeypatch.setattr(tf.keras.Model, "fit", look)
    one, other = (
        here(store, sample_weight_col=name, run_id=None).fit_on_parquet().getHistory()["loss"] for name in ("w", "ws")
    )
    assert one == pytest.approx(other) and seen == [[None], [None]]
