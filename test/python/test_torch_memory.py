"""Memory that a program changes or uses twice while an operation is in progress."""

import numpy as np
import pytest
import torch

import horovod.torch as hvd
from horovod.torch._operation import storage_of

pytestmark = pytest.mark.usefixtures("job")


def is_late():
    """Whether this is the rank that submits only after the others have changed their tensors."""
    return hvd.size() > 1 and hvd.rank() == hvd.size() - 1


def amid(start, change):
    """Start an operation, change something while it is in progress, and return its handle."""
    handle = None if is_late() else start()
    if handle is not None:
        change()
    hvd.barrier()
    return start() if handle is None else handle


def outcome(handle):
    """The result of an operation, or the text of its failure."""
    try:
        return hvd.synchronize(handle)
    except (ValueError, hvd.HorovodInternalError) as e:
        return f"{type(e).__name__}: {e}"


# ---- The memory of a tensor is kept, whatever becomes of the tensor.


def poison(n):
    """Memory of this size, which is likely to be what was freed just now."""
    return [torch.full((n,), 1e6) for _ in range(4)]


def replace_data(x):
    x.data = torch.zeros_like(x)


def replace_storage(x):
    x.set_(torch.zeros_like(x))


def numpys(n):
    return torch.from_numpy(np.ones(n, dtype=np.float32))


OPERATIONS = {
    "allreduce_": lambda x: hvd.allreduce_async_(x, op=hvd.Sum, name="kept"),
    "allreduce": lambda x: hvd.allreduce_async(x, op=hvd.Sum, name="kept"),
    "grouped_allreduce_": lambda x: hvd.grouped_allreduce_async_([x], op=hvd.Sum, name="kept"),
    "grouped_allreduce": lambda x: hvd.grouped_allreduce_async([x], op=hvd.Sum, name="kept"),
    "allgather": lambda x: hvd.allgather_async(x, name="kept"),
    "grouped_allgather": lambda x: hvd.grouped_allgather_async([x], name="kept"),
    "broadcast_": lambda x: hvd.broadcast_async_(x, 0, name="kept"),
    "broadcast": lambda x: hvd.broadcast_async(x, 0, name="kept"),
    "alltoall": lambda x: hvd.alltoall_async(x, name="kept"),
    "alltoall of splits": lambda x: hvd.alltoall_async(x, given_splits(len(x)), name="kept"),
    "reducescatter": lambda x: hvd.reducescatter_async(x, op=hvd.Sum, name="kept"),
    "grouped_reducescatter": lambda x: hvd.grouped_reducescatter_async([x], op=hvd.Sum, name="kept"),
}
SUMS = ("allreduce", "reducescatter", "grouped_allreduce", "grouped_reducescatter")


def given_splits(n):
    """Splits to which the caller keeps no reference."""
    return torch.full((hvd.size(),), n // hvd.size(), dtype=torch.int32)


LARGE = 1_200_000  # so large that the allocator returns it to the system at once


@pytest.mark.parametrize(
    ("n", "replace", "make"),
    [
        (60, replace_data, torch.ones),
        (60, replace_storage, torch.ones),
        (60, replace_data, numpys),
        (LARGE, replace_data, torch.ones),
    ],
    ids=["data", "set_", "numpy", "large"],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_memory_is_kept(operation, n, replace, make):
    x = make(n)
    scribbles = []

    def change():
        replace(x)
        scribbles.extend(poison(n))

    result = hvd.synchronize(amid(lambda: OPERATIONS[operation](x), change))
    assert all(bool((s == 1e6).all()) for s in scribbles)
    result = result[0] if isinstance(result, (list, tuple)) else result
    if operation.endswith("_") and not is_late():
        assert bool((x == 0).all())  # the result is in the memory that the tensor had
    else:
        assert bool((result == (hvd.size() if operation.rstrip("_") in SUMS else 1)).all())


def test_optimizer_gradients_that_are_replaced():
    """If a program replaces a gradient or its data during the reduction, step still uses the reduced values."""
    parameter = torch.nn.Parameter(torch.zeros(60))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), named_parameters=[("p", parameter)], op=hvd.Sum
    )

    def changes():
        parameter.grad.data = torch.full((60,), 7.0)
        yield
        parameter.grad = torch.full((60,), 7.0)
        yield

    for step, _ in enumerate(changes_of(parameter, optimizer, changes()), 1):
        assert parameter.tolist() == [-float(hvd.size() * step)] * 60


def changes_of(parameter, optimizer, changes):
    """Take steps with gradients of ones, and make the next of the changes between backward and step of each."""
    for _ in range(2):
        if is_late():
            hvd.barrier()
        optimizer.zero_grad()
        parameter.sum().backward()
        if not is_late():
            if hvd.size() > 1:  # else nothing is reduced
                next(changes)
            scribbles = poison(60)
            hvd.barrier()
            del scribbles
        optimizer.step()
        yield


def grow(x):
    x.resize_(3 * x.numel())


def shrink_storage(x):
    storage_of(x).resize_(0)


def share(x):
    x.share_memory_()


@pytest.mark.parametrize("resize", [grow, shrink_storage, share])
@pytest.mark.parametrize("operation", ["allreduce", "grouped_allreduce", "allgather"])
def test_freed_memory_is_told(operation, resize):
    """A rank that frees memory in use gets an error that says so. The engine only reads the memory here."""
    x = torch.ones(60)
    result = outcome(amid(lambda: OPERATIONS[operation](x), lambda: resize(x)))
    if is_late():
        assert not isinstance(result, str)
    elif hvd.size() > 1:
        assert "ValueError: The tensor's memory was freed while an operation was using it" in result
        assert '(tensor "kept' in result


@pytest.mark.parametrize("resize", [grow, shrink_storage, share])
@pytest.mark.parametrize("operation", ["allreduce", "grouped_allreduce", "allgather"])
def test_memory_may_be_freed_once_poll_has_told_the_end(operation, resize):
    x = torch.ones(60)
    handle = OPERATIONS[operation](x)
    while not hvd.poll(handle):
        pass
    resize(x)
    assert not isinstance(outcome(handle), str)


# ---- Two operations on the same memory.


def refusal(result, first, second):
    """Whether this rank was told of the refusal of an operation that shares memory with another one."""
    here = f'ValueError: Allreduce of tensor "{second}" is refused: it '
    there = f'refuses Allreduce of tensor "{second}": it '
    return isinstance(result, str) and (here in result or there in result) and f'"{first}"' in result


PAIRS = {
    "in place": lambda x: (x, hvd.allreduce_async_, x),
    "view": lambda x: (x[:40], hvd.allreduce_async_, x[39:]),
    "reshaped": lambda x: (x.view(6, 10), hvd.allreduce_async_, x.view(60)),
    "read": lambda x: (x, hvd.allreduce_async, x[59:]),
    "detached": lambda x: (x.detach(), hvd.allreduce_async_, x.data),
}


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("pair", PAIRS)
def test_shared_memory_is_refused(pair, everywhere):
    if hvd.size() == 1:
        pytest.skip("an operation on one rank may have ended before the next one")
    x = torch.ones(60)
    one, submit, two = PAIRS[pair](x)
    if hvd.rank() > 0 and not everywhere:
        two = two.clone()
    second = []

    def start():
        first = hvd.allreduce_async_(one, op=hvd.Sum, name="first")
        second.append(submit(two, op=hvd.Sum, name="second"))
        return first

    first = amid(start, lambda: None)
    assert bool((hvd.synchronize(first) == hvd.size()).all())
    assert refusal(outcome(second[0]), "allreduce.first", "allreduce.second")
    again = torch.ones(60)
    assert bool((hvd.allreduce_(again, op=hvd.Sum, name="second") == hvd.size()).all())


def test_tensor_twice_in_a_group():
    x = torch.ones(60)
    result = outcome(hvd.grouped_allreduce_async_([x, torch.ones(2), x[:1]], op=hvd.Sum, name="g"))
    assert refusal(result, "grouped_allreduce.g_1of3", "grouped_allreduce.g_3of3") and "of the same group" in result


def test_one_tensor_may_be_read_often():
    x = torch.ones(60)
    handles = [hvd.allreduce_async(x, op=hvd.Sum) for _ in range(100)] + [hvd.allgather_async(x) for _ in range(100)]
    results = [hvd.synchronize(h) for h in handles]
    assert all(bool((r == hvd.size()).all()) for r in results[:100])
    assert all(r.tolist() == [1] * 60 * hvd.size() for r in results[100:])


def test_tied_weights_are_broadcast():
    """The same memory under several names, as a state_dict has it, from one root."""
    weight = torch.full((60,), float(hvd.rank()))
    hvd.broadcast_parameters({"embedding": weight, "head": weight, "part": weight[3:]}, hvd.size() - 1)
    assert weight.tolist() == [hvd.size() - 1] * 60


@pytest.mark.parametrize("op", [hvd.Average, hvd.Max, hvd.Sum])
def test_tied_weights_are_averaged_in_place(op):
    """Each name of a state_dict, in operations that are all in progress at once."""
    model = torch.nn.Sequential(torch.nn.Embedding(7, 5), torch.nn.Linear(5, 5), torch.nn.Linear(5, 7))
    model[2].weight = model[0].weight
    state = model.state_dict()
    for i in range(4):  # also when the names are known
        for tensor in state.values():
            tensor.fill_(float(hvd.rank() + i))
        handles = [hvd.allreduce_async_(tensor, name=name, op=op) for name, tensor in state.items()]
        results = {name: outcome(handle) for name, handle in zip(state, handles)}
        if op == hvd.Sum:
            second = results.pop("2.weight")  # a rank alone may have ended the first one already
            assert hvd.size() == 1 or refusal(second, "allreduce.0.weight", "allreduce.2.weight")
        average, largest = i + (hvd.size() - 1) / 2, i + hvd.size() - 1
        expected = {hvd.Average: average, hvd.Max: largest, hvd.Sum: average * hvd.size()}[op]
        for name, result in results.items():
            assert not isinstance(result, str), result
            torch.testing.assert_close(state[name], torch.full_like(state[name], expected))
        hvd.barrier()
