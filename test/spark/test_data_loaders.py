"""Data loaders and data modules over the reader."""

import concurrent.futures
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.spark.common import _prefetch
from horovod.spark.common.datamodule import ParquetDataModule, PetastormDataModule
from horovod.spark.common.reader import ParquetReader
from horovod.spark.data_loaders import pytorch_data_loaders as loaders
from horovod.spark.torch import datamodule as torch_datamodule


def test_closing_early_ends(monkeypatch):
    """Also if a thread becomes free between two of the cancellations."""
    cancel, free = concurrent.futures.Future.cancel, threading.Event()

    def cancel_slowly(future):
        done = cancel(future)
        if done:
            free.set()
            time.sleep(0.1)
        return done

    parts = _prefetch.InTurn(lambda: iter(range(4)))

    def load(number):
        part = parts.take(number)
        assert number != 1 or free.wait(10)
        return part

    jobs = [_prefetch.Job(lambda number=number: load(number), 1) for number in range(4)]
    results = _prefetch.ahead(jobs, 1, 100, lambda part: 1)
    assert next(results) == 0
    monkeypatch.setattr(concurrent.futures.Future, "cancel", cancel_slowly)
    closing = threading.Thread(target=results.close, daemon=True)
    closing.start()
    closing.join(5)
    hangs = closing.is_alive()
    parts._broken = True  # what waits for its turn is let go
    with parts._turn:
        parts._turn.notify_all()
    assert not hangs


class Counting(BaseDataLoader):
    """Three batches, or an error after ``failing`` of them."""

    def __init__(self, failing=None):
        self.failing = failing
        self.thread = None

    def __len__(self):
        return 3

    def _iterate(self):
        for number in range(3):
            self.thread = threading.current_thread()
            if number == self.failing:
                raise KeyError(number)
            yield number

    def _process_batch(self, batch):
        return batch * 10


class CountingAhead(AsyncDataLoaderMixin, Counting):
    pass


@pytest.fixture
def path(tmp_path):
    table = pa.table({"row": np.arange(100), "x": list(np.arange(200, dtype=np.float32).reshape(100, 2))})
    parquet.write_table(table, tmp_path / "one.parquet", row_group_size=7)
    return str(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 2, 64])
def test_batches_are_made_ahead(size):
    loader = CountingAhead(async_loader_queue_size=size)
    assert len(loader) == 3
    assert list(loader) == list(loader) == [0, 10, 20]
    assert (loader.thread is threading.current_thread()) == (size == 0)


def test_an_error_comes_in_its_turn():
    seen = []
    with pytest.raises(KeyError, match="2"):
        for batch in CountingAhead(failing=2):
            seen.append(batch)
    assert seen == [0, 10]


def test_closing_ends_the_thread():
    before = threading.active_count()
    loader = CountingAhead(async_loader_queue_size=1)
    iterator = iter(loader)
    assert next(iterator) == 0
    assert threading.active_count() == before + 1
    loader.close_async_loader()
    assert threading.active_count() == before
    assert list(iterator) == []
    assert list(loader) == [0, 10, 20]


def test_a_loop_that_breaks_leaves_no_thread():
    before = threading.active_count()
    for _ in CountingAhead(async_loader_queue_size=1):
        break
    assert threading.active_count() == before


def test_how_many_are_ready(capsys):
    list(CountingAhead(debug_data_loader=True))
    assert "batch 2: 1 more are ready" in capsys.readouterr().err  # the end


def test_what_a_loader_must_define():
    class Nothing(BaseDataLoader):
        pass

    with pytest.raises(NotImplementedError, match="define __len__"):
        len(Nothing())
    with pytest.raises(NotImplementedError, match="define _iterate"):
        next(iter(Nothing()))
    with pytest.raises(ValueError, match="async_loader_queue_size=-1"):
        CountingAhead(async_loader_queue_size=-1)


@pytest.mark.parametrize("ahead", [False, True])
def test_pytorch_loaders(path, ahead):
    def make(name, **options):
        kind = getattr(loaders, f"Pytorch{name}{'Async' if ahead else ''}DataLoader")
        return kind(reader=ParquetReader(path), batch_size=30, **options)

    once = make("")
    assert len(once) == 4
    for _ in range(2):
        batches = list(once)
        assert [len(batch["row"]) for batch in batches] == [30, 30, 30, 10]
        assert all(torch.equal(batch["x"][:, 0], 2.0 * batch["row"]) for batch in batches)
        assert sorted(torch.cat([batch["row"] for batch in batches]).tolist()) == list(range(100))
    assert len(list(make("", limit_step_per_epoch=2))) == 2
    first = next(iter(make("", shuffling_queue_capacity=0)))
    assert first["row"].tolist() == list(range(30))

    endless = make("Infinite", limit_step_per_epoch=6)
    rows = [row for _ in range(2) for batch in endless for row in batch["row"].tolist()]
    assert len(rows) == 300 and all(rows.count(row) == 3 for row in range(100))  # 12 batches are 3 epochs

    kept = make("Inmem", num_epochs=2)
    rows = [batch["row"].tolist() for batch in kept]
    assert len(rows) == 8 and sorted(sum(rows[:4], [])) == sorted(sum(rows[4:], [])) == list(range(100))
    assert rows[:4] != rows[4:]


def module(path, kind=ParquetDataModule, **options):
    options = {"train_batch_size": 8, "val_batch_size": 8, "shard_count": 3, **options}
    return kind(path, path, schema_fields=["row"], **options)


@pytest.mark.parametrize("steps, count", [(None, 5), (4, 4), (5, 5), (9, 9)])
def test_steps_of_a_data_module(path, steps, count):
    for rank in range(3):
        with module(path, cur_shard=rank, steps_per_epoch_train=steps) as data:
            loader = data.train_data()
            assert len(loader) == count
            for _ in range(2):
                rows = [int(row) for batch in loader for row in batch["row"]]
                assert len(set(rows)) == len(rows) if count <= 5 else len(set(rows)) == data.train_reader.rows


def test_few_steps_continue_one_another(path):
    with module(path, shard_count=1, steps_per_epoch_train=3) as data:
        loader = data.train_data()
        epochs = [[int(row) for batch in loader for row in batch["row"]] for _ in range(4)]
    assert [len(rows) for rows in epochs] == [24] * 4
    assert len(set(sum(epochs, []))) == 96


def test_processes_agree_on_an_epoch_whatever_their_steps(path):
    modules = [module(path, cur_shard=rank, steps_per_epoch_train=5).__enter__() for rank in range(3)]
    trains = [data.train_data() for data in modules]
    for _ in range(3):
        rows = [int(row) for loader in trains for batch in loader for row in batch["row"]]
        assert set(rows) == set(range(100))


def test_validation_rows_keep_their_order(path):
    with module(path, shard_count=1, steps_per_epoch_val=None) as data:
        assert [int(row) for batch in data.val_data() for row in batch["row"]] == list(range(100))
    with module(path, has_val=False) as data:
        assert data.val_data() is None


def test_tensors(path):
    with torch_datamodule.PetastormDataModule(path, path, steps_per_epoch_train=None) as data:
        batch = next(iter(data.train_data()))
    assert torch.equal(batch["x"][:, 0], 2.0 * batch["row"]) and batch["x"].shape == (32, 2)


def test_columns_that_are_no_tensors(tmp_path):
    table = pa.table({"n": pa.array([1, 2], pa.uint16()), "text": ["a", "b"]})
    parquet.write_table(table, tmp_path / "one.parquet")
    reader = ParquetReader(str(tmp_path), columns=["n"])
    assert next(iter(loaders.PytorchDataLoader(reader)))["n"].dtype == torch.int32
    with pytest.raises(TypeError, match="'text'"):
        next(iter(loaders.PytorchDataLoader(ParquetReader(str(tmp_path)))))


def test_bad_use(path):
    with pytest.raises(RuntimeError, match="enter the data module first"):
        module(path).train_data()
    with pytest.raises(ValueError, match="reader_pool_type='pool'"):
        module(path, reader_pool_type="pool")
    with pytest.warns(UserWarning, match="threads read"):
        module(path, kind=PetastormDataModule, reader_pool_type="process")


def test_a_process_without_rows_takes_those_of_others(path):
    for shard, rows in ((0, 7), (199, 1)):  # of 100 rows in row groups of 7: shard 0 has none, shard 199 has one
        with module(path, shard_count=200, cur_shard=shard, steps_per_epoch_train=2) as data:
            assert [len(batch["row"]) for batch in data.train_data()] == [rows, rows]


def test_a_training_of_keras(path):
    keras = pytest.importorskip("keras")
    from horovod.spark.keras import datamodule

    with datamodule.ParquetDataModule(
        path, path, train_batch_size=10, val_batch_size=30, steps_per_epoch_train=5, steps_per_epoch_val=None
    ) as data:
        train, val = (d.map(lambda row: (row["x"], row["row"])) for d in (data.train_data(), data.val_data()))
        assert [len(labels) for _, labels in val] == [30, 30, 30, 10]
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit(train, steps_per_epoch=5, epochs=2, validation_data=val, verbose=0).history
    assert len(history["loss"]) == len(history["val_loss"]) == 2
