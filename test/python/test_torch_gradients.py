"""Gradients against finite differences, on all ranks and on sets of them.

The loss is the sum of what all members make of their outputs, and it is linear, so that a difference of any size is
the derivative. Horovod's gradients of allgather and broadcast are those of the mean over members, and those of
reducescatter are those of the sum times their number: that is the factor of each case.
"""

import itertools

import pytest
import torch
from definitions import check, hvd_size, in_step, of_rank, rejoin

import horovod.torch as hvd

# What is differentiated: (function of tensors, name and process set; factor as a function of the number of members).
CASES = {
    "allreduce sum": (lambda t, **kw: [hvd.allreduce(t[0], op=hvd.Sum, **kw)], lambda n: 1),
    "allreduce average": (lambda t, **kw: [hvd.allreduce(t[0], **kw)], lambda n: 1),
    "allreduce scaled": (
        lambda t, **kw: [hvd.allreduce(t[0], op=hvd.Sum, prescale_factor=2.0, postscale_factor=-3.0, **kw)],
        lambda n: 1,
    ),
    "grouped allreduce": (lambda t, **kw: hvd.grouped_allreduce(t, op=hvd.Sum, prescale_factor=0.5, **kw), lambda n: 1),
    "allgather": (lambda t, **kw: [hvd.allgather(t[0], **kw)], lambda n: 1 / n),
    "grouped allgather": (lambda t, **kw: hvd.grouped_allgather(t, **kw), lambda n: 1 / n),
    "broadcast": (lambda t, **kw: [hvd.broadcast(t[0], kw["process_set"].ranks[-1], **kw)], lambda n: 1 / n),
    "alltoall": (lambda t, **kw: [hvd.alltoall(t[0], **kw)], lambda n: 1),
    "alltoall with splits": (
        lambda t, **kw: [hvd.alltoall(t[0], splits=[1] * kw["process_set"].size(), **kw)[0]],
        lambda n: 1,
    ),
    "reducescatter sum": (lambda t, **kw: [hvd.reducescatter(t[0], op=hvd.Sum, **kw)], lambda n: n),
    "reducescatter average": (lambda t, **kw: [hvd.reducescatter(t[0], **kw)], lambda n: n),
    "reducescatter scaled": (
        lambda t, **kw: [hvd.reducescatter(t[0], op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5, **kw)],
        lambda n: n,
    ),
    "grouped reducescatter": (lambda t, **kw: hvd.grouped_reducescatter(t, op=hvd.Sum, **kw), lambda n: n),
    "broadcast, twice and nested": (
        lambda t, **kw: [
            hvd.broadcast(
                hvd.broadcast(t[0], kw["process_set"].ranks[0], process_set=kw["process_set"]),
                kw["process_set"].ranks[0],
                process_set=kw["process_set"],
            )
        ],
        # The second backward averages a gradient that is zero except on the root.
        lambda n: 1 / n**2,
    ),
}


@pytest.fixture(scope="module")
def sets(job):
    """Every set of two or more ranks, including the set of all ranks."""
    n = hvd_size()
    several = [hvd.ProcessSet(ranks) for size in range(2, n) for ranks in itertools.combinations(range(n), size)]
    rejoin(process_sets=several)
    yield [hvd.global_process_set, *several]
    rejoin()


def derivatives(loss, tensors, process_set):
    """The derivatives of the sum of all members' ``loss`` by the elements of this member's ``tensors``."""
    result = [torch.zeros_like(t) for t in tensors]
    for member in range(process_set.size()):
        mine = member == process_set.rank()
        for number, i in ((number, i) for number, t in enumerate(tensors) for i in range(t.numel())):
            losses = [loss(changed(tensors, number, i, by if mine else 0)) for by in (1, -1)]
            up, down = (hvd.allreduce(x, op=hvd.Sum, process_set=process_set) for x in losses)
            if mine:
                result[number].view(-1)[i] = (up - down) / 2
    return result


def changed(tensors, number, i, by):
    """Copies of the tensors, element ``i`` of one of them changed."""
    copies = [t.clone() for t in tensors]
    copies[number].view(-1)[i] += by
    return copies


@pytest.mark.parametrize("case", CASES)
def test_finite_differences(sets, case):
    function, factor = CASES[case]
    for process_set in sets:
        if process_set.included():
            compare(function, process_set, factor, 2 if "grouped" in case else 1)
        in_step()


def compare(function, process_set, factor, count):
    """Compare the gradients of ``count`` tensors, as a member of the set."""
    n, rank = process_set.size(), process_set.rank()
    tensors = [of_rank(rank, (n, 2), torch.float64), of_rank(rank, (n,), torch.float64, seed=1)]
    tensors = tensors[:count]
    outputs = function([t.clone() for t in tensors], process_set=process_set)
    weights = [of_rank(rank, o.shape, torch.float64, seed=2 + i) for i, o in enumerate(outputs)]

    def loss(ts):
        return sum((o * w).sum() for o, w in zip(function(ts, process_set=process_set), weights))

    variables = [t.clone().requires_grad_() for t in tensors]
    loss(variables).backward()
    expected = derivatives(loss, tensors, process_set)
    for variable, derivative in zip(variables, expected):
        check(variable.grad, derivative * factor(n))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_narrow_types(job, dtype):
    """The gradient has the type of the tensor."""
    for case, (function, _) in CASES.items():
        n = hvd.size()
        tensors = [torch.ones(n, 2, dtype=dtype, requires_grad=True), torch.ones(n, dtype=dtype, requires_grad=True)]
        tensors = tensors[: 2 if "grouped" in case else 1]
        sum(o.sum() for o in function(tensors, process_set=hvd.global_process_set)).backward()
        for t in tensors:
            assert t.grad.dtype is dtype, case
            assert bool(t.grad.isfinite().all()), case


def test_gradients_through_several_operations(job):
    """As in a network whose layers are on different ranks: x goes to all, and the results are added up."""
    n = hvd.size()
    x = of_rank(hvd.rank(), (n, 3), torch.float64).requires_grad_()
    there = hvd.alltoall(x)
    back = hvd.alltoall(there * 2)
    hvd.allreduce(back, op=hvd.Sum).sum().backward()
    check(x.grad, torch.full_like(x, 2.0 * n))


def test_whole_numbers_have_no_gradient(job):
    for dtype in (torch.uint8, torch.int32, torch.int64):
        result = hvd.allreduce(torch.ones(2, dtype=dtype))
        assert result.dtype is dtype and not result.requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        hvd.allreduce(torch.ones(2, dtype=torch.int32)).requires_grad_()
