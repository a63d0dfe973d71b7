"""The life of an operation, in the code that all front ends share, on plain memory of ctypes."""

import ctypes

import pytest

from horovod.common import _cells, _job, _lib, _operations
from horovod.common.exceptions import HorovodInternalError

FLOATS = ctypes.c_float * 4


@pytest.fixture(autouse=True)
def joined():
    _job.init()


def allreduce(name, values, flags=_cells.WILL_WAIT | _cells.RELEASE_IF_OK):
    at = ctypes.addressof(values)
    operation = _operations.describe(
        name and name.encode(), (len(values),), flags, _lib.ALLREDUCE, _lib.FLOAT32, _lib.SUM, 0, 0, 1.0, 1.0, at, at
    )
    operation.keeps = values
    return operation


def allgather(name, values):
    address = ctypes.addressof(values)
    operation = _operations.describe(
        name.encode(), (len(values),), 0, _lib.ALLGATHER, _lib.FLOAT32, 0, 0, 0, 1.0, 1.0, address, 0
    )
    operation.keeps = values
    return operation


def empty(shape):
    made = (ctypes.c_float * shape[0])()
    return made, ctypes.addressof(made)


@pytest.mark.parametrize("flags", [0, _cells.WILL_WAIT, _cells.RELEASE_IF_OK, _cells.WILL_WAIT | _cells.RELEASE_IF_OK])
def test_one(flags):
    values = FLOATS(1, 2, 3, 4)
    operation = allreduce("one", values, flags)
    operation.submit()
    handle = operation.handle
    assert operation.wait() == operation.status() == _lib.OK
    assert list(values) == [_job.size() * x for x in (1, 2, 3, 4)]
    operation.release()
    assert operation.keeps is None
    again = allreduce("one", values)
    assert again is operation  # the cell is used again
    again.free()
    assert _lib.load().gorovod_wait(handle, 0) not in (_lib.OK, _lib.IN_PROGRESS), "the handle is still known"


def test_outputs_are_copied_or_taken_over():
    mine = FLOATS(*[_job.rank()] * 4)
    operation = allgather("small", mine)
    operation.submit()
    operation.wait()
    everything = [rank for rank in range(_job.size()) for _ in range(4)]
    assert list(operation.output(1, 4, empty, lambda *_: pytest.fail("it is small"))) == everything
    operation.release()

    large = (ctypes.c_float * (_operations.LARGE_BYTES // 4))(_job.rank())
    operation = allgather("large", large)
    operation.submit()
    operation.wait()
    view, shape = operation.output(1, 4, lambda _: pytest.fail("it is large"), lambda *taken: taken)
    operation.release()
    assert shape == (len(large) * _job.size(),)
    assert list(view.cast("f")[:: len(large)]) == list(range(_job.size()))


def test_a_group_has_the_failure_of_its_first_that_fails():
    if _job.size() == 1:
        pytest.skip("one rank agrees with itself")
    wrong = (ctypes.c_float * (5 + _job.rank()))()
    group = _operations.Group([allreduce(None, FLOATS()), allreduce(None, wrong), allreduce(None, FLOATS())])
    group.submit(b"some")
    assert group.wait() not in (_lib.OK, _lib.IN_PROGRESS)
    assert group.failed() == 1
    failure = group.failure()
    assert isinstance(failure, HorovodInternalError) and "tensor of shape [5]" in str(failure)
    group.release()
    assert [operation.keeps for operation in group.operations] == [None] * 3


def test_what_is_abandoned_is_kept_until_it_has_ended():
    if _job.size() == 1:
        pytest.skip("one rank waits for none")
    late = allreduce("late", FLOATS(1, 1, 1, 1))
    group = _operations.Group([late])
    if _job.rank() == 0:
        group.submit_as_fits(None)
        _operations.abandon(group)
        assert group in _operations._abandoned and late.keeps is not None
    barrier("before")
    if _job.rank() != 0:
        late.submit()
    late.wait()
    if _job.rank() == 0:
        _operations.abandon(_operations.Group([]))
        assert group not in _operations._abandoned and late.keeps is None
    else:
        late.release()
    assert _operations._abandoned == []


def barrier(name):
    operation = allreduce(name, FLOATS())
    operation.submit()
    operation.wait()
    operation.release()


def test_waiting_until_a_time():
    operation = allreduce("in time", FLOATS(), 0)
    if _job.size() > 1 and _job.rank() == 0:
        operation.submit()
        assert not _operations.wait_until([operation.handle], 0.0)
    barrier("then")
    if not (_job.size() > 1 and _job.rank() == 0):
        operation.submit()
    assert _operations.wait_until([operation.handle], float(2**31))
    assert operation.status() == _lib.OK
    operation.release()
