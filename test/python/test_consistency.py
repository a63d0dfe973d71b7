"""Ranks whose parameters differ: check_consistency and GOROVOD_CONSISTENCY."""

import pytest
import torch
from definitions import rejoin, several

import horovod.torch as hvd
from horovod.common import _consistency
from horovod.common._consistency import Print
from horovod.common.exceptions import ConsistencyError as Error


@pytest.fixture(autouse=True)
def joined(job):
    """Every test runs in a job."""


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(50, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))


def test_equal_models_are_equal():
    net = model()
    net[1].running_mean += hvd.rank()
    hvd.check_consistency(net)
    hvd.check_consistency(net.state_dict() if hvd.size() == 1 else dict(net.named_parameters()))
    hvd.check_consistency(net[0].named_parameters())


@several()
def test_the_odd_rank_and_tensor_are_named():
    net, last = model(), hvd.size() - 1
    if hvd.rank() == last:
        with torch.no_grad():
            net[2].weight.view(torch.int32)[0, 1] ^= 1
    with pytest.raises(hvd.ConsistencyError) as told:
        hvd.check_consistency(net)
    if hvd.size() == 2:
        assert str(told.value) == "rank 0 and rank 1 have different 2.weight"
        assert told.value.odd_ranks == {"2.weight": [0, 1]}
    else:
        assert str(told.value) == f"rank {last}'s 2.weight differs from the other {last} ranks'"
        assert told.value.odd_ranks == {"2.weight": [last]}


@several()
@pytest.mark.parametrize(
    "odd, words",
    [
        ({}, "rank 1 has no x, which is float32 [2] on rank 0"),
        ({"x": torch.ones(3)}, "x is float32 [2] on rank 0, float32 [3] on rank 1"),
        ({"x": torch.ones(2, 1)}, "x is float32 [2] on rank 0, float32 [2, 1] on rank 1"),
        ({"x": torch.ones(2).double()}, "x is float32 [2] on rank 0, float64 [2] on rank 1"),
        ({"x": torch.zeros(2)}, "rank 0 and rank 1 have different x"),
    ],
    ids=["missing", "size", "shape", "type", "elements"],
)
def test_the_error_says_what_differs(odd, words):
    with pytest.raises(hvd.ConsistencyError) as told:
        hvd.check_consistency(odd if hvd.rank() == 1 else {"x": torch.ones(2)})
    assert hvd.size() > 2 or str(told.value) == words


@several()
def test_buffers_and_gradients_on_request():
    net = model()
    net[0].weight.grad = torch.full((3, 50), float(hvd.rank()))
    net[1].running_mean += hvd.rank()
    hvd.check_consistency(net)
    with pytest.raises(hvd.ConsistencyError, match=r"different 0\.weight\.grad|0\.weight\.grad differs"):
        hvd.check_consistency(net, gradients=True)
    with pytest.raises(hvd.ConsistencyError, match="running_mean"):
        hvd.check_consistency(net, buffers=True)


def test_storage_does_not_count():
    values = torch.arange(12.0).reshape(3, 4)
    mine = values.t().contiguous().t() if hvd.rank() else values
    hvd.check_consistency({"x": mine, "half": mine.bfloat16(), "empty": torch.empty(0), "number": torch.tensor(3)})


@pytest.mark.parametrize("bad", [None, 3, torch.ones(2), [torch.ones(2)], {"x": 1}], ids=str)
def test_what_is_no_model_is_refused(bad):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, or tensors by name"):
        hvd.check_consistency(bad)


@pytest.mark.parametrize(
    "name, words", [("x\ud83d", "half of a surrogate pair"), ("x\0", "NUL")], ids=["surrogate", "NUL"]
)
def test_names_that_no_operation_has_are_refused(name, words):
    with pytest.raises(ValueError, match=words):
        hvd.check_consistency({name: torch.ones(1)})


def test_optimizer_compares_every_few_steps(monkeypatch):
    monkeypatch.setenv("GOROVOD_CONSISTENCY", "3")
    rejoin()
    try:
        for op in (hvd.Average, hvd.Adasum):
            net = model()
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=0.01), net.named_parameters(), op=op
            )
            for step in range(6):
                optimizer.zero_grad()
                net(torch.randn(4, 50)).sum().backward()
                if step == 4 and hvd.rank() == hvd.size() - 1:
                    with torch.no_grad():
                        net[0].bias[1] += 1
                if step == 5 and hvd.size() > 1:
                    with pytest.raises(hvd.ConsistencyError, match=r"0\.bias") as told:
                        optimizer.step()
                    assert list(told.value.odd_ranks) == ["0.bias"]
                else:
                    optimizer.step()
    finally:
        monkeypatch.delenv("GOROVOD_CONSISTENCY")
        rejoin()


A, B, C = Print("float32 [2]", b"a"), Print("float32 [2]", b"b"), Print("float32 [3]", b"c")
D = Print("float64 [2]", b"d")


@pytest.mark.parametrize(
    "tables, words, odd",
    [
        ([{"x": A}] * 3 + [{"x": B}], "rank 7's x differs from the other 3 ranks'", [7]),
        ([{"x": B}] + [{"x": A}] * 3, "rank 1's x differs from the other 3 ranks'", [1]),
        ([{"x": B}, {"x": B}, {"x": A}, {"x": A}], "ranks 1, 3 and ranks 5, 7 have different x", [1, 3, 5, 7]),
        (
            [{"x": A}, {"x": B}, {"x": C}, {}],
            "x is float32 [2] on ranks 1, 3, float32 [3] on rank 5, missing on rank 7",
            [1, 3, 5, 7],
        ),
        ([{"x": A}, {"x": A}, {}, {}], "ranks 5, 7 have no x, which is float32 [2] on ranks 1, 3", [1, 3, 5, 7]),
        ([{}, {"x": A}, {"x": B}, {}][:2], "rank 1 has no x, which is float32 [2] on rank 3", [1, 3]),
        ([{"x": A}, {"x": C}], "x is float32 [2] on rank 1, float32 [3] on rank 3", [1, 3]),
        ([{"x": A}, {"x": D}], "x is float32 [2] on rank 1, float64 [2] on rank 3", [1, 3]),
        ([{"x": A}, {"x": B}], "rank 1 and rank 3 have different x", [1, 3]),
        (
            [{"x": A}, {"x": A}, {"x": C}, {}],
            "rank 5's x is float32 [3], rank 7 has no x, the other 2 ranks' is float32 [2]",
            [5, 7],
        ),
        (
            [{"x": A}, {"x": A}, {"x": B}, {"x": C}],
            "rank 5's x differs, rank 7's x is float32 [3], the other 2 ranks' is float32 [2]",
            [5, 7],
        ),
        ([{"x": A}, {}, {"x": A}, {"x": A}], "rank 3 has no x, unlike the other 3 ranks", [3]),
        ([{}, {}, {}, {"x": A}], "rank 7's x is on none of the other 3 ranks", [7]),
        ([{"x": A}, {"x": A}, {"x": C}, {"x": A}], "rank 5's x is float32 [3], the other 3 ranks' is float32 [2]", [5]),
    ],
)
def test_words(tables, words, odd):
    def gather(obj, name):
        return [table == tables[0] for table in tables] if name == "check_consistency" else [dict(t) for t in tables]

    with pytest.raises(Error) as told:
        _consistency.check(tables[0], [1, 3, 5, 7], gather)
    assert (str(told.value), told.value.odd_ranks) == (words, {"x": odd})
