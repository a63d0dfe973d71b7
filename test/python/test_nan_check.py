"""GOROVOD_NAN_CHECK: which rank brought the NaN."""

import re

import pytest
import torch
from definitions import rejoin, several

import horovod.torch as hvd


@pytest.fixture
def checked(job, monkeypatch):
    """Joins the job anew with the check as given; afterwards the job is as before."""

    def init(how):
        monkeypatch.setenv("GOROVOD_NAN_CHECK", how)
        rejoin()

    yield init
    monkeypatch.delenv("GOROVOD_NAN_CHECK")
    rejoin()


def with_nan(dtype):
    """Ones; on the last rank with a NaN at index 5."""
    data = torch.ones(3, 4, dtype=dtype)
    if hvd.rank() == hvd.size() - 1:
        data[1, 1] = float("nan")
    return data


@pytest.mark.parametrize("how", ["1", "warn"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_the_bringer_tells_the_tensor_once(checked, capfd, how, dtype):
    checked(how)
    for _ in range(3):
        assert hvd.allreduce(with_nan(dtype), name="spoilt").isnan().sum() == 1
    hvd.allreduce(torch.ones(3, dtype=dtype), name="sound")
    mine = [line for line in capfd.readouterr().err.splitlines() if "contributes" in line]
    if hvd.rank() == hvd.size() - 1:
        assert len(mine) == 1, mine
        name = str(dtype).removeprefix("torch.")
        said = f'a NaN to allreduce "allreduce.spoilt": at index 5 of 12 ({name}); NaNs: 1, infinities: 0'
        assert f": rank {hvd.rank()} " in mine[0] and said in mine[0], mine
    else:
        assert not mine


def with_nan_row(embedding):
    """Gradients of an embedding's rows 1 and 2; on the last rank with a NaN in row 2."""
    factor = float("nan") if hvd.rank() == hvd.size() - 1 else 1.0
    rows = embedding(torch.tensor([1, 2]))
    (rows[0].sum() + factor * rows[1].sum()).backward()


@several()
@pytest.mark.parametrize("how", ["warn", "abort"])
def test_values_of_sparse_gradients_are_checked(checked, capfd, how):
    checked(how)
    embedding = torch.nn.Embedding(6, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=0.1), named_parameters=embedding.named_parameters()
    )
    said = 'a NaN to allgather "allgather.weight.values": at index 2 of 4 (float32); NaNs: 2, infinities: 0'
    with_nan_row(embedding)
    if how == "abort":
        with pytest.raises(hvd.HorovodInternalError, match=re.escape(said)):
            optimizer.step()
    else:
        optimizer.step()
        assert embedding.weight[2].isnan().all()
    mine = [line for line in capfd.readouterr().err.splitlines() if "contributes" in line]
    assert [said in line for line in mine] == ([True] if hvd.rank() == hvd.size() - 1 else []), mine
    if how == "abort":
        hvd.shutdown()
        hvd.init()


def test_other_allgathers_are_not_checked(checked):
    checked("abort")
    assert hvd.allgather(with_nan(torch.float32)).isnan().sum() == 1


def test_all_ranks_fail_with_the_bringers_name(checked):
    checked("abort")
    assert hvd.allreduce(torch.ones(3), op=hvd.Max, name="sound").tolist() == [1, 1, 1]
    with pytest.raises(hvd.HorovodInternalError) as told:
        hvd.allreduce(with_nan(torch.float32), name="spoilt")
    assert f"rank {hvd.size() - 1}" in str(told.value).partition(" contributes a NaN to allreduce")[0]
    assert '"allreduce.spoilt": at index 5 of 12 (float32); NaNs: 1, infinities: 0' in str(told.value)
    hvd.shutdown()
    hvd.init()
