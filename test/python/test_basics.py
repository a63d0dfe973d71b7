"""Life cycle, topology, process sets, and the small functions around them."""

import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from definitions import works

import horovod.torch as hvd
from horovod.common import _lib, exceptions, util
from horovod.common.basics import HorovodBasics
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.torch import mpi_ops

TOPOLOGY = ["rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"]
NOT_INITIALIZED = r"^Horovod has not been initialized; use hvd.init\(\)\.$"


def test_topology(job):
    for what in TOPOLOGY:
        value = getattr(hvd, what)()
        assert type(value) is int
        if "HOROVOD_" + what.upper() in os.environ:
            assert value == int(os.environ["HOROVOD_" + what.upper()])
    assert 0 <= hvd.rank() < hvd.size()
    assert (hvd.rank(), hvd.size()) == get_env_rank_and_size()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.rank() == hvd.rank()
    assert hvd.global_process_set.included() is True
    assert mpi_ops.is_homogeneous() is True


def test_init_again_changes_nothing(job):
    handle = hvd.allreduce_async(torch.ones(2), name="across", op=hvd.Sum)
    hvd.init()
    hvd.init(comm=[0])
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 2


def test_shutdown_and_init(job):
    for _ in range(3):
        hvd.barrier()  # shutdown fails operations that other ranks have not finished
        hvd.shutdown()
        assert not hvd.is_initialized()
        hvd.shutdown()
        for what in TOPOLOGY:
            with pytest.raises(ValueError, match=NOT_INITIALIZED):
                getattr(hvd, what)()
        with pytest.raises(hvd.HorovodInternalError, match=NOT_INITIALIZED):
            hvd.allreduce(torch.ones(2))
        with pytest.raises(hvd.HorovodInternalError, match=NOT_INITIALIZED):
            hvd.barrier()
        for call in (lambda: hvd.start_timeline("/nowhere"), hvd.stop_timeline, hvd.global_process_set.size):
            with pytest.raises(ValueError, match=NOT_INITIALIZED):
                call()
        assert mpi_ops._handle_map == {}
        hvd.init()
        assert hvd.is_initialized()
        works()


def test_handles_count_from_one_after_shutdown(job):
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce_async(torch.ones(1)) == 1
    hvd.synchronize(1)


def test_handles_are_forgotten_by_shutdown(job):
    handle = hvd.allreduce_async(torch.ones(1), name="forgotten")
    hvd.barrier()
    hvd.shutdown()
    assert hvd.synchronize(handle) is None
    hvd.init()
    works()


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.skipif(get_env_rank_and_size()[1] == 1, reason="needs two ranks")
def test_shutdown_while_threads_wait(job, monkeypatch):
    outcomes, threads = [], []

    def slow_wait(handle, engine_wait=_lib.wait):
        status = engine_wait(handle)
        if threading.current_thread() in threads:
            until(lambda: not mpi_ops._handle_map)  # shutdown forgets the handle before the threads look
        return status

    def wait(handle):
        try:
            outcomes.append(hvd.synchronize(handle))
        except hvd.HorovodInternalError as e:
            outcomes.append(str(e))

    monkeypatch.setattr(_lib, "wait", slow_wait)
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="only here")
        operation = mpi_ops._handle_map[handle]
        threads += [threading.Thread(target=wait, args=(handle,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: operation.waiting == 2)
    hvd.barrier()
    hvd.shutdown()
    assert mpi_ops._handle_map == {}
    for thread in threads:
        thread.join()
    if threads:  # one thread gets the error, the other None
        assert None in outcomes and len(outcomes) == 2
        assert "Horovod has been shut down" in (outcomes[0] or outcomes[1])
    hvd.init()
    works()


@pytest.mark.skipif(get_env_rank_and_size()[1] == 1, reason="needs two ranks")
def test_shutdown_of_another_rank_ends_what_is_pending(job):
    if hvd.rank() == 0:
        hvd.shutdown()
    else:
        with pytest.raises(hvd.HorovodInternalError, match="Horovod has been shut down"):
            while True:
                hvd.allreduce(torch.ones(2), name="pending")
        assert hvd.is_initialized()  # until its own shutdown
        hvd.shutdown()
    hvd.init()
    works()


def test_enumerations(job):
    assert (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product) == (0, 1, 2, 3, 4, 5)
    basics = HorovodBasics(__file__, "mpi_lib_v2")
    assert basics.Sum == hvd.Sum
    assert basics.rank() == hvd.rank()
    errors = [getattr(basics, f"HOROVOD_PROCESS_SET_ERROR_{e}") for e in ("INIT", "DYNAMIC", "UNKNOWN_SET")]
    errors += [getattr(basics, f"HOROVOD_PROCESS_SET_ERROR_{e}") for e in ("FOREIGN_SET", "SHUTDOWN", "EXISTING_SET")]
    assert errors == [-1, -2, -3, -4, -5, -6]


def test_what_is_built(job):
    assert hvd.gloo_built() is True
    assert hvd.gloo_enabled() is True
    assert hvd.mpi_built() in (False, True)  # whether there is a library
    for no in ("mpi_enabled", "ddl_built", "ccl_built", "rocm_built"):
        assert getattr(hvd, no)() is False
    assert type(hvd.nccl_built()) is int
    assert hvd.cuda_built() is (hvd.nccl_built() > 0)
    assert util.nccl_built() == hvd.nccl_built()
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
    assert util.gloo_built() is True
    assert util.mpi_built() is hvd.mpi_built()
    assert util.extension_available("torch")
    assert not util.extension_available("mxnet")


def test_bad_init_arguments(job):
    with pytest.raises(ValueError, match="Invalid type of argument comm"):
        hvd.init(comm=3)
    with pytest.raises(ValueError, match="not an int"):
        hvd.init(comm=["0"])
    communicator = type("Comm", (), {"__module__": "mpi4py.MPI"})()
    with pytest.raises(ValueError, match="Invalid type of argument comm" if hvd.mpi_built() else "HOROVOD_WITH_MPI=1"):
        hvd.init(comm=communicator)
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="static")
    works()


# ---- process sets


def test_process_set_objects(job):
    process_set = hvd.ProcessSet(range(3, 0, -1))
    assert process_set.ranks == [1, 2, 3]
    assert str(process_set) == "ProcessSet(process_set_id=None, ranks=[1, 2, 3], mpi_comm=None)"
    assert process_set.size() is None
    assert process_set.rank() is None
    assert process_set.included() == (hvd.rank() in (1, 2, 3))
    for bad in (["0"], [0.5], 7, None):
        with pytest.raises(ValueError):
            hvd.ProcessSet(bad)
    process_set.process_set_id = 4321
    with pytest.raises(ValueError, match="Unknown process set id 4321"):
        process_set.size()
    assert hvd.remove_process_set(hvd.global_process_set) is False
    assert hvd.remove_process_set(hvd.ProcessSet([0])) is False


def test_process_sets_are_refused_honestly(job):
    with pytest.raises(ValueError, match="process sets|DYNAMIC"):
        hvd.add_process_set([0])
    works()


def test_init_with_the_same_set_twice(job):
    hvd.barrier()
    hvd.shutdown()
    sets = [hvd.ProcessSet([0]), hvd.ProcessSet([0])]
    with pytest.raises(ValueError, match="Horovod initialization failed|duplicate"):
        hvd.init(process_sets=sets)
    hvd.shutdown()
    hvd.init()
    works()


# ---- interrupts


@pytest.mark.skipif(get_env_rank_and_size()[1] == 1, reason="needs a rank to wait for")
def test_interrupt_leaves_the_handle_alive(job):
    mine = torch.ones(100)
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(mine, name="late", op=hvd.Sum)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            hvd.synchronize(handle)
        timer.join()
        assert handle in mpi_ops._handle_map
        assert hvd.poll(handle) is False
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(mine, name="late", op=hvd.Sum)
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 100
    works()


@pytest.mark.skipif(get_env_rank_and_size()[1] == 1, reason="needs a rank to wait for")
def test_interrupt_of_a_blocking_call(job):
    if hvd.rank() == 0:
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            hvd.allreduce(torch.ones(10), name="blocking", op=hvd.Sum)
        timer.join()
    hvd.barrier()
    if hvd.rank() != 0:  # the interrupted operation goes on
        assert hvd.allreduce(torch.ones(10), name="blocking", op=hvd.Sum).tolist() == [hvd.size()] * 10
    works()
    mpi_ops._handle_map.clear()


# ---- small functions


def test_missing_library(monkeypatch, tmp_path):
    monkeypatch.setenv("GOROVOD_LIBRARY", str(tmp_path / "libgorovod.so"))
    with pytest.raises(ImportError, match="GOROVOD_LIBRARY is .*, which is not a file"):
        _lib.path()
    monkeypatch.delenv("GOROVOD_LIBRARY")
    monkeypatch.setattr(_lib, "__file__", str(tmp_path / "python" / "horovod" / "common" / "_lib.py"))
    with pytest.raises(ImportError, match="make build"):
        _lib.path()
    for place in (tmp_path / "build", tmp_path / "python" / "horovod" / "lib"):  # the wheel's comes first
        place.mkdir(parents=True)
        (place / "libgorovod.so").touch()
        assert _lib.path() == place / "libgorovod.so"


def test_average_and_op():
    resolve = util.get_average_backwards_compatibility_fun(SimpleNamespace(Average="average", Sum="sum"))
    assert resolve(None, None) == "average"
    assert resolve("op", None) == "op"
    with pytest.deprecated_call():
        assert resolve(None, True) == "average"
    with pytest.deprecated_call():
        assert resolve(None, False) == "sum"
    with pytest.raises(ValueError):
        resolve("op", False)


def test_split_list():
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert util.split_list([1], 2) == [[1], []]


def test_powers_of_two():
    assert [n for n in range(-2, 20) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8, 16]


def test_versions():
    assert util.is_version_greater_equal_than("1.10.0", "1.9.1")
    assert util.is_version_greater_equal_than("2.0.0+cpu", "2.0.0")
    assert not util.is_version_greater_equal_than("1.9.1", "1.10.0")
    with pytest.raises(ValueError):
        util.is_version_greater_equal_than("1.9", "1.9.0")


def test_env(monkeypatch):
    monkeypatch.setenv("GOROVOD_TEST_A", "before")
    monkeypatch.delenv("GOROVOD_TEST_B", raising=False)
    with util.env(GOROVOD_TEST_A=None, GOROVOD_TEST_B="inside"):
        assert "GOROVOD_TEST_A" not in os.environ
        assert os.environ["GOROVOD_TEST_B"] == "inside"
    assert os.environ["GOROVOD_TEST_A"] == "before"
    assert "GOROVOD_TEST_B" not in os.environ


def test_env_rank_and_size(monkeypatch):
    pairs = ["HOROVOD", "OMPI_COMM_WORLD", "PMI"]
    for prefix in pairs:
        monkeypatch.delenv(prefix + "_RANK", raising=False)
        monkeypatch.delenv(prefix + "_SIZE", raising=False)
    assert get_env_rank_and_size() == (0, 1)
    for i, prefix in reversed(list(enumerate(pairs))):
        monkeypatch.setenv(prefix + "_RANK", str(i))
        with pytest.raises(RuntimeError, match=f"only one of {prefix}_RANK and {prefix}_SIZE"):
            get_env_rank_and_size()
        monkeypatch.setenv(prefix + "_SIZE", str(i + 5))
        assert get_env_rank_and_size() == (i, i + 5)


def test_exceptions():
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    mismatch = exceptions.HorovodVersionMismatchError("torch", "1.0", "2.0")
    assert isinstance(mismatch, ImportError)
    assert "2.0" in str(mismatch)


def test_every_framework_version_is_the_right_one(recwarn):
    for exception in (None, ImportError("another reason")):
        assert util.check_installed_version("pytorch", "99.0.0", exception) is None
    assert len(recwarn) == 0


def test_timers_are_exact_but_those_of_the_monitor(job):
    """Only Go's monitor thread has a long timer slack, 5 ms, so that it rarely takes the program's core."""
    hvd.allreduce(torch.ones(2), name="exact")
    try:
        slacks = [int(Path(f"/proc/{task}/timerslack_ns").read_text()) for task in os.listdir("/proc/self/task")]
        mine = int(Path(f"/proc/{threading.get_native_id()}/timerslack_ns").read_text())
    except PermissionError:
        pytest.skip("the kernel shows a thread's timer slack to root only")
    assert [slack for slack in slacks if slack != mine] == [5_000_000]
