"""Saves of embeddings whose rows are divided among the ranks, and what their state_dict says."""

import os
import sys
import warnings

import pytest
import torch

import horovod.torch as hvd

DIM = 3


@pytest.fixture(autouse=True, scope="module")
def _world(job):
    """The job."""


@pytest.fixture
def shared(tmp_path):
    """A directory that is the same on all ranks."""
    return hvd.broadcast_object(str(tmp_path), root_rank=0)


def keys_of(step):
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randint(60, (30,), generator=generator) * (1 << 33)


def train(layer, steps):
    for step in steps:
        (layer(keys_of(step)) * (step + 1)).sum().backward()


def all_rows(layer):
    layer.eval()
    rows = layer(torch.arange(60) * (1 << 33))
    layer.train()
    return rows


@pytest.mark.parametrize("optimizer", ["adam", "rowwise_adagrad", "sgd"])
def test_a_loaded_table_goes_on_as_the_saved_one(shared, optimizer):
    def rate(n):
        return 0.1 / (1 + n)

    made = {"optimizer": optimizer, "seed": 7, "lr": rate}
    layer = hvd.ShardedEmbedding(DIM, name=f"saved.{optimizer}", **made)
    train(layer, range(4))
    layer.save(shared)
    before = all_rows(layer)
    train(layer, range(4, 6))
    after = all_rows(layer)
    assert not torch.equal(before, after)
    layer.load(shared)
    assert torch.equal(all_rows(layer), before) and layer._table.pushes == 4
    train(layer, range(4, 6))
    assert torch.equal(all_rows(layer), after)
    bag = hvd.ShardedEmbeddingBag(DIM, name=f"other.{optimizer}", **made)
    with pytest.raises(ValueError, match=f"the save is of a table whose name is saved.{optimizer}; here it is other"):
        bag.load(shared)
    assert sorted(os.listdir(shared))[0] == "manifest" and len(os.listdir(shared)) == 1 + hvd.size()


def keys_of_rank(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(60, (30,), generator=generator)


def test_errors(shared):
    layer = hvd.ShardedEmbedding(DIM, name="errors")
    with pytest.raises(OSError, match=f'table "errors" cannot be loaded: rank 0.*: {shared} has no save of a table'):
        layer.load(shared)
    for path in ("", b"", "a\0b"):
        with pytest.raises(ValueError, match="cannot be named"):
            layer.save(path)
    with pytest.raises(TypeError):
        layer.save(None)
    last = hvd.size() - 1
    if last:
        with pytest.raises(
            hvd.HorovodInternalError, match=f'rank 0 saves table "errors" to "{shared}", rank {last} saves'
        ):
            layer.save(shared if hvd.rank() < last else shared + "-other")
    blocked = os.path.join(shared, "file")
    if hvd.rank() == 0:
        open(blocked, "w").close()
    hvd.barrier()
    with pytest.raises(OSError, match=f'table "errors" cannot be saved: rank 0.*{blocked}'):
        layer.save(blocked)
    layer.prefetch(torch.tensor([1]))
    with pytest.raises(ValueError, match="prefetch was called; call forward with its keys before load"):
        layer.load(shared)
    layer.save(shared)
    layer(torch.tensor([1]))
    layer.load(shared)


def test_state_dicts_do_not_lose_rows_silently(shared):
    layer = hvd.ShardedEmbedding(DIM, name="stateful")
    model = torch.nn.Sequential(layer, torch.nn.Linear(DIM, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    train(layer, range(3))
    with pytest.warns(UserWarning, match=r"no rows of sparse table 'stateful', which 3 pushes .* Call save\(path\)"):
        model.state_dict()
    layer.save(shared)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = model.state_dict()
    assert saved["0._extra_state"].tolist() == [3]

    again = hvd.ShardedEmbedding(DIM, name="stateful2")
    torch.nn.Sequential(again, torch.nn.Linear(DIM, 1)).load_state_dict(saved)
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match="belongs to rows of sparse table 'stateful2' after 3 pushes, and the table"
        ):
            again(torch.tensor([1]))
    train(layer, range(1))
    layer.load_state_dict(layer.state_dict())
    layer(torch.tensor([1]))
    layer.load(shared)
    model.load_state_dict(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(layer, range(1))
        layer.load_state_dict(saved_of(saved))
        layer.load(shared)
        layer(torch.tensor([1]))
    train(layer, range(1))
    layer.load_state_dict(saved_of(saved))
    with pytest.warns(UserWarning, match="after 3 pushes, and the table has had 4"):
        layer(torch.tensor([1]))


def saved_of(saved):
    return {"_extra_state": saved["0._extra_state"]}


@pytest.mark.parametrize("most", [1, 7, 65536])
def test_record_batches(most):
    pytest.importorskip("pyarrow")
    layer = hvd.ShardedEmbedding(DIM, name=f"served.{most}")
    train(layer, range(3))
    keys, rows = [], []
    for batch in layer.record_batches(most):
        assert batch.schema.names == ["key", "row"] and 0 < batch.num_rows <= max(most, 2)
        batch.validate(full=True)
        keys += batch.column("key").to_pylist()
        rows += batch.column("row").to_pylist()
    assert len(keys) == layer.local_rows() == len(set(keys))
    assert sorted(k for part in hvd.allgather_object(keys) for k in part) == sorted(
        {int(k) << 33 for r in range(hvd.size()) for step in range(3) for k in keys_of_rank(r, step)}
    )
    layer.eval()
    assert torch.equal(layer(torch.tensor(keys, dtype=torch.int64)), torch.tensor(rows).view(-1, DIM))


def test_record_batches_without_pyarrow(monkeypatch):
    layer = hvd.ShardedEmbedding(DIM)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="record_batches needs pyarrow: pip install pyarrow"):
        layer.record_batches()
    with pytest.raises(ValueError, match="rows must be above 0, not 0"):
        layer.record_batches(0)
