"""TorchEstimator for Lightning, on real Spark."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from names import check_names
from pyspark.ml.linalg import DenseVector, SparseVector, Vectors
from pyspark.sql.types import DoubleType

pl = pytest.importorskip("pytorch_lightning")

from horovod.spark.common.backend import Backend  # noqa: E402
from horovod.spark.common.datamodule import DataModule, NVTabularDataModule  # noqa: E402
from horovod.spark.common.store import Store  # noqa: E402
from horovod.spark.lightning import TorchEstimator, TorchModel, _package  # noqa: E402
from horovod.spark.lightning.datamodule import ParquetDataModule  # noqa: E402
from horovod.spark.lightning.estimator import MIN_PL_VERSION  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def store(tmp_path):
    return Store.create(str(tmp_path))


class Line(pl.LightningModule):
    """Learns y from features."""

    def __init__(self, inputs=2, rate=0.05):
        super().__init__()
        torch.manual_seed(7)
        self.layer = torch.nn.Linear(inputs, 1)
        self.rate = rate

    def forward(self, features):
        return self.layer(features)

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self(batch["features"]).flatten(), batch["y"].float())

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 100)]


def plane(spark, rows=101):
    """y = 2a - b + 1, in a number of rows that the processes cannot share evenly."""
    made = np.random.default_rng(3).normal(size=(rows, 2))
    return spark.createDataFrame(
        [(Vectors.dense(row), float(2 * row[0] - row[1] + 1), i % 5 == 0) for i, row in enumerate(made)],
        ["features", "y", "is_validation"],
    )


def estimator(where, **params):
    given = {
        "model": Line(),
        "feature_cols": ["features"],
        "label_cols": ["y"],
        "store": where,
        "num_proc": 2,
        "batch_size": 8,
        "epochs": 6,
        "verbose": 0,
        "random_seed": 1,
        "partitions_per_process": 2,
    }
    return TorchEstimator(**{**given, **params})


def test_names_and_signatures_are_horovods():
    check_names(Path(__file__).parent / "api_lightning.txt")


def test_an_older_lightning_is_refused(monkeypatch):
    monkeypatch.setattr(pl, "__version__", "1.9.5")
    assert _package.MIN_PL_VERSION == MIN_PL_VERSION == "2.0.0"
    with pytest.raises(ImportError, match="needs Lightning 2.0.0 or later; pytorch_lightning is 1.9.5"):
        _package.of(Line())


@pytest.mark.parametrize(
    "given",
    [{"debug_data_loader": True}, {"train_async_data_loader_queue_size": 2}, {"val_async_data_loader_queue_size": 2}],
)
def test_queues_are_for_the_own_data_module(store, given):
    (name,) = given
    asked = TorchEstimator(model=Line(), store=store, feature_cols=["features"], label_cols=["y"], **given)
    asked._check_trainer()
    with pytest.raises(ValueError, match=f"{name} is for the estimator's own data module"):
        asked.setDataModule(type("Own", (DataModule,), {}))._check_trainer()


@pytest.mark.smoke
def test_a_line_is_learnt_predicted_and_goes_on(spark, store, tmp_path):
    df = plane(spark)
    trained = estimator(store, validation="is_validation", run_id="first", log_every_n_steps=1).fit(df)
    history = trained.getHistory()
    assert [told["epoch"] for told in history] == list(range(6))
    assert history[-1]["loss_epoch"] < history[0]["loss_epoch"] / 10
    assert history[-1]["val_loss"] < 0.1
    rows = trained.transform(df).collect()
    assert trained.transform(df).schema["y__output"].dataType == DoubleType()
    assert np.mean([(row.y - row.y__output) ** 2 for row in rows]) < 0.1
    saved = torch.load(store.get_checkpoint_path("first")[len("file://") :])
    assert saved["epoch"] == 5
    assert saved["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(0.05)
    assert saved["lr_schedulers"][0]["base_lrs"] == pytest.approx([0.05])
    with torch.no_grad():
        assert torch.allclose(saved["state_dict"]["layer.weight"], trained.getModel().layer.weight)

    trained.write().overwrite().save(str(tmp_path / "saved"))
    again = TorchModel.load(str(tmp_path / "saved")).setOutputCols(["guess"])
    assert again.getHistory() == history
    assert [row.guess for row in again.transform(df).collect()] == [row.y__output for row in rows]

    more = estimator(store, run_id="first", epochs=2).fit_on_parquet(dataset_idx=0).getHistory()
    assert len(more) == 2 and more[0]["loss_epoch"] < history[-1]["loss_epoch"] * 1.5
    saved = torch.load(store.get_checkpoint_path("first")[len("file://") :])
    assert saved["epoch"] == 7
    assert saved["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(0.05)


def same_rows(spark, rows):
    """Equal rows: it does not matter which process has which."""
    return spark.createDataFrame([(Vectors.dense([1.0, 2.0]), 3.0)] * rows, ["features", "y"])


def steps(shares, rate):
    """The weights after steps of plain SGD, of which each takes a share of the rows' gradient."""
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for share in shares:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(torch.tensor([[1.0, 2.0]])).flatten(), torch.tensor([3.0]))
        (loss * share).backward()
        optimizer.step()
    return model.layer.weight.detach()


class Same(pl.Callback):
    """Fails unless all processes end with the same parameters."""

    def on_train_end(self, trainer, pl_module):
        import horovod.torch as hvd

        assert trainer.world_size == hvd.size() and trainer.global_rank == hvd.rank()
        found = hvd.allgather_object([value.cpu() for value in pl_module.state_dict().values()])
        assert all(torch.equal(a, b) for other in found for a, b in zip(found[0], other))


@pytest.mark.parametrize(
    ("rows", "batch", "passes", "shares"),
    [
        (32, 8, 1, [1, 1]),
        (32, 4, 2, [1, 1]),
        (19, 8, 1, [1, 0.5]),  # the second batch is one process's alone
        (1, 8, 1, [0.5]),  # the other process has no rows
    ],
)
def test_each_row_counts_once(spark, store, rows, batch, passes, shares):
    params = {"model": Line(rate=0.01), "batch_size": batch, "backward_passes_per_step": passes, "epochs": 1}
    trained = estimator(store, callbacks=[Same()], **params).fit(same_rows(spark, rows))
    assert torch.allclose(trained.getModel().layer.weight.detach(), steps(shares, 0.02), atol=1e-6)


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 3)
        self.second = torch.nn.Linear(4, 1)

    def forward(self, features):
        return self.first(features), self.second(features)


def test_a_plain_model_with_weights_sparse_columns_and_fewer_rows(spark, store):
    df = spark.createDataFrame(
        [(SparseVector(4, [i % 3], [1.0]), i % 3, float(i % 3), 1.0 + i % 2) for i in range(64)],
        ["features", "kind", "y", "w"],
    )
    model = Two()
    trained = estimator(
        store,
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.05),
        loss=[torch.nn.functional.cross_entropy, torch.nn.functional.mse_loss],
        loss_weights=[1.0, 0.5],
        metrics=[largest],
        label_cols=["kind", "y"],
        sample_weight_col="w",
        compress_sparse_cols=True,
        transformation_fn=lambda rows: rows[rows.y < 1.5],  # of each three rows one is left out
        validation=0.2,
        callbacks=[Same()],
        epochs=8,
    ).fit(df)
    history = trained.getHistory()
    assert set(history[0]) == {
        "epoch", "loss", "kind_largest", "y_largest", "val_loss", "val_kind_largest", "val_y_largest"
    }  # fmt: skip
    assert history[-1]["loss"] < history[0]["loss"] / 2
    rows = trained.transform(df).where("y < 1.5").collect()
    assert isinstance(rows[0]["kind__output"], DenseVector) and rows[0]["kind__output"].size == 3
    assert np.mean([int(np.argmax(row["kind__output"])) == row.kind for row in rows]) > 0.9


def largest(output, label):
    return output.max()


class Manual(Line):
    """Two optimizers that take turns, a parameter that nobody uses, and a metric of torchmetrics."""

    def __init__(self):
        super().__init__()
        from torchmetrics import SumMetric

        self.automatic_optimization = False
        self.other = torch.nn.Embedding(3, 1, sparse=True)
        self.unused = torch.nn.Linear(1, 1)
        self.rows = SumMetric()

    def training_step(self, batch, batch_idx):
        for number, optimizer in enumerate(self.optimizers()):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            loss = self.loss(batch) if number == 0 else self.other(torch.tensor([1])).pow(2).sum()
            self.manual_backward(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)

    def validation_step(self, batch, batch_idx):
        assert self.all_gather(torch.tensor([self.global_rank])).flatten().tolist() == [0, 1]
        self.rows.update(float(len(batch["y"])))

    def on_validation_epoch_end(self):
        self.log("rows", self.rows.compute())
        self.log("most", float(self.global_rank), sync_dist=True, reduce_fx="max")
        self.rows.reset()

    def configure_optimizers(self):
        sparse = torch.optim.SGD(self.other.parameters(), lr=0.05)
        return torch.optim.SGD([*self.layer.parameters(), *self.unused.parameters()], 0.05, weight_decay=0.1), sparse


def test_manual_optimization_and_exchanges(spark, store):
    model = Manual()
    before = model.unused.weight.detach().clone()
    first = estimator(store, model=model, validation="is_validation", callbacks=[Same()], epochs=2, batch_size=16)
    trained = first.fit(plane(spark, 100))
    assert [told["rows"] for told in trained.getHistory()] == [20.0, 20.0]
    assert trained.getHistory()[0]["most"] == 1.0
    assert torch.equal(trained.getModel().unused.weight, before)
    weights = trained.getModel().other.weight.detach().abs() / model.other.weight.detach().abs()
    assert weights[1] < 0.9 and weights[0] == weights[2] == 1


def test_callbacks_logs_and_settings_of_the_trainer(spark, store):
    import horovod.torch as hvd

    trained = estimator(
        store,
        model=Line(rate=0.5),
        validation="is_validation",
        run_id="run",
        gradient_compression=hvd.Compression.fp16,
        callbacks=[
            pl.callbacks.EarlyStopping("val_loss", patience=1, min_delta=1e9),
            pl.callbacks.ModelCheckpoint(monitor="val_loss", filename="best"),
        ],
        logger=None,
        log_every_n_steps=1,
        profiler="simple",
        trainer_args={"gradient_clip_val": 0.01, "limit_train_batches": 3},
        train_async_data_loader_queue_size=2,
        val_async_data_loader_queue_size=2,
        debug_data_loader=True,
        terminate_on_nan=True,
    ).fit(plane(spark))
    assert len(trained.getHistory()) == 2
    moved = trained.getModel().layer.weight.detach() - Line().layer.weight.detach()
    assert 0 < moved.norm() <= 6 * 0.01 + 1e-6  # six steps, each of the rate 1 and a gradient that is clipped
    assert [path.rpartition("/")[2] for path in store.get_checkpoints("run")] == ["best.ckpt"]
    path = store.get_logs_path("run")
    if store.exists(f"{path}/metrics.csv"):
        steps_logged = [row["step"] for row in csv.DictReader(io.StringIO(store.read(f"{path}/metrics.csv").decode()))]
        assert steps_logged[0] == "0"
    else:
        pytest.importorskip("tensorboard")


class Exploding(Line):
    def loss(self, batch):
        return super().loss(batch) * float("inf")


def test_numbers_that_are_not_finite(spark, store):
    with pytest.raises(RuntimeError, match="terminate_on_nan: the loss returned in `training_step` is inf"):
        estimator(store, model=Exploding(), terminate_on_nan=True).fit(plane(spark, 16))


class Here(Backend):
    """One process: this one."""

    def run(self, fn, args=(), kwargs=None, env=None):
        return [fn(*args, **(kwargs or {}))]

    def num_processes(self):
        return 1


class Own(ParquetDataModule):
    """A user's data module, which is told how many batches to give."""

    def on_before_batch_transfer(self, batch, dataloader_idx):
        assert self.steps_per_epoch_train == 2
        return {name: column.float() for name, column in batch.items()}


def test_a_data_module_of_ones_own_without_a_forward(spark, store):
    params = {"num_proc": None, "backend": Here(), "data_module": Own, "epochs": 2, "model": Blind()}
    trained = estimator(store, **params).fit(same_rows(spark, 16))
    assert trained.getHistory()[1]["loss"] < trained.getHistory()[0]["loss"]
    with pytest.raises(ValueError, match=r"forward\(\) has not run"):
        trained.transform(same_rows(spark, 4))


class Blind(Line):
    forward = pl.LightningModule.forward

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layer(batch["features"]).flatten(), batch["y"])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"model": None}, "needs the parameter model"),
        ({"model": torch.nn.Linear(2, 1)}, "needs the parameter optimizer"),
        ({"optimizer": torch.optim.SGD(Line().parameters(), lr=1)}, "optimizer is for other models"),
        ({"loss": torch.nn.MSELoss()}, "loss is for other models"),
        ({"metrics": [largest]}, "metrics is for other models"),
        ({"train_minibatch_fn": largest}, "write a training_step"),
        ({"trainer_args": {"devices": 2}}, "trainer_args has 'devices': the estimator decides it"),
        ({"trainer_args": {"max_epochs": 2}}, "trainer_args has 'max_epochs': give the parameter epochs"),
        ({"loader_num_epochs": 2}, "loader_num_epochs=2: there are more epochs, 6"),
        ({"num_gpus": 2}, "num_gpus=2: a process has one GPU"),
        ({"tensorflow_dataset_prefetch_buffer_size": 2}, "is for Keras"),
    ],
)
def test_refusals(spark, store, params, words):
    with pytest.raises(ValueError, match=words):
        estimator(store, **params).fit_on_parquet()


def test_what_changes_nothing_is_told(spark, store):
    with pytest.warns(UserWarning, match="changes nothing"), pytest.raises(ValueError, match="not exist"):
        estimator(store, loader_num_epochs=6).fit_on_parquet()


def test_nvtabular_says_that_it_is_not_here(store):
    with pytest.raises(NotImplementedError, match="leave data_module out"):
        estimator(store, data_module=NVTabularDataModule).fit_on_parquet()


def test_setters():
    one = TorchEstimator().setNumGpus(1).setTrainerArgs({"a": 1}).setTerminateOnNan(True).setLogEveryNSteps(7)
    assert (one.getNumGpus(), one.getTrainerArgs(), one.getTerminateOnNan(), one.getLogEveryNSteps()) == (
        1, {"a": 1}, True, 7
    )  # fmt: skip


def test_checkpoints_that_do_not_fit(spark, store, tmp_path):
    params = {"num_proc": None, "backend": Here(), "run_id": "run", "epochs": 1}
    same_rows(spark, 16).write.parquet(store.get_train_data_path())
    estimator(store, **params).fit_on_parquet()
    assert len(estimator(store, **params).fit_on_parquet().getHistory()) == 1
    run = tmp_path / "runs" / "run"
    assert not [path.name for path in run.iterdir() if "earlier" in path.name]
    words = "(?s)cannot go on from the checkpoint file://.*/run/checkpoint: .*"
    for model, why in ((Line(inputs=3), "size mismatch"), (Manual(), "Missing key")):
        with pytest.raises(ValueError, match=words + why):
            estimator(store, model=model, **params).fit_on_parquet()
    with pytest.raises(ValueError, match=words + "parameter groups"):
        estimator(store, model=Groups(), **params).fit_on_parquet()
    (run / "checkpoint").write_bytes((run / "checkpoint").read_bytes()[:200])
    with pytest.raises(ValueError, match=words):
        estimator(store, **params).fit_on_parquet()


class Groups(Line):
    def configure_optimizers(self):
        return torch.optim.SGD([{"params": [one]} for one in self.parameters()], lr=self.rate)
