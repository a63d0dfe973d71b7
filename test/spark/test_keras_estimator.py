"""KerasEstimator and KerasModel, on real Spark."""

import os

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from pyspark.ml.linalg import DenseVector, SparseVector, Vectors  # noqa: E402
from pyspark.sql.types import FloatType  # noqa: E402

from horovod.spark.common.store import Store  # noqa: E402
from horovod.spark.keras import KerasEstimator, KerasModel  # noqa: E402


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path))


def line(inputs=2, outputs=1, activation=None):
    tf.keras.utils.set_random_seed(7)
    return tf.keras.Sequential([tf.keras.Input((inputs,)), tf.keras.layers.Dense(outputs, activation=activation)])


def plane(spark, rows=101):
    """y = 2a - b + 1, with a row whose number no process shares evenly."""
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
    """How many values of what TensorBoard shows of a run."""
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
