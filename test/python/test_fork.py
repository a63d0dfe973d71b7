"""Forked children: DataLoader workers live and die beside the engine, and a call from a child is refused at once."""

import multiprocessing
import os
import pickle
import select
import signal

import pytest
import torch
from definitions import works
from torch.utils.data import DataLoader, TensorDataset

import horovod.torch as hvd
from horovod.torch import mpi_ops

pytestmark = pytest.mark.usefixtures("job")

_LONGEST_CHILD_S = 20


def in_child(function):
    """What ``function`` returns, or the exception that it raises, in a forked child. Fails if it takes long."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            result = function()
        except BaseException as e:  # noqa: B036
            result = (type(e).__name__, str(e))
        os.write(write, pickle.dumps(result))
        os._exit(0)
    os.close(write)
    try:
        ready, _, _ = select.select([read], [], [], _LONGEST_CHILD_S)
        if not ready:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("the child hangs")
        return pickle.loads(os.read(read, 1 << 16))
    finally:
        os.waitpid(pid, 0)
        os.close(read)


def test_calls_in_a_child():
    ones = torch.ones(2)
    for call in (
        lambda: hvd.allreduce(ones),
        lambda: hvd.allreduce_async_(ones, name="child"),
        lambda: hvd.allgather(ones),
        lambda: hvd.broadcast(ones, 0),
        hvd.barrier,
    ):
        kind, text = in_child(call)
        assert kind == "HorovodInternalError"
        assert "forked child" in text
    for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.global_process_set.size):
        kind, text = in_child(call)
        assert kind == "ValueError"
        assert "forked child" in text
    kind, text = in_child(hvd.init)
    assert kind == "ValueError"
    assert "forked child" in text
    assert in_child(hvd.is_initialized) is False
    works()


def test_shutdown_in_a_child_leaves_the_parent_alone():
    handle = hvd.allreduce_async(torch.ones(2), name="parent", op=hvd.Sum)
    assert in_child(hvd.shutdown) is None
    assert hvd.is_initialized()
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2
    works()


def test_child_that_waits_for_the_parents_handle():
    handle = hvd.allreduce_async(torch.ones(2), name="inherited", op=hvd.Sum)
    for call in (hvd.synchronize, hvd.poll):
        kind, text = in_child(lambda call=call: call(handle))
        assert kind == "HorovodInternalError"
        assert "forked child" in text
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2


def test_results_are_readable_in_a_child():
    """Output of the engine is ordinary memory, which a worker's dataset may hold."""
    for n in (1000, 100_000):  # copied, and on the engine's own memory
        gathered = [hvd.allgather(torch.full((n,), float(hvd.rank())))]
        total = float(n * sum(range(hvd.size())))
        assert in_child(lambda tensors=gathered: float(tensors[0].sum())) == total
        assert in_child(lambda tensors=gathered: tensors.clear()) is None  # frees its own copy
        assert float(gathered[0].sum()) == total


def test_child_that_ends_as_a_program_does():
    """Exit handlers run in it."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: None)
    child.start()
    child.join(_LONGEST_CHILD_S)
    assert child.exitcode == 0
    pid = os.fork()
    if pid == 0:
        import atexit

        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    works()


@pytest.mark.parametrize("persistent", [False, True])
def test_data_loader(persistent):
    rows = 24
    data = TensorDataset(torch.arange(rows, dtype=torch.float32))
    loader = DataLoader(
        data, batch_size=6, num_workers=2, multiprocessing_context="fork", persistent_workers=persistent
    )
    for epoch in range(12):
        seen = 0.0
        for (part,) in loader:
            handle = hvd.allreduce_async_(part, name=f"epoch.{epoch}", op=hvd.Sum)  # pending while workers come and go
            seen += hvd.synchronize(handle).sum().item()
        assert seen == hvd.size() * sum(range(rows))
    assert mpi_ops._handle_map == {}
