"""The compiled way of NumPy's arrays, which stand for tensors of JAX and TensorFlow."""

import itertools
import sys

import numpy as np
import pytest
from test_native import pytestmark, resident  # noqa: F401

import horovod.torch as hvd
from horovod.common import _arrays, _lib, _operations


class Capsule:
    """What numpy.from_dlpack takes."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


def arguments_of(x, target, name=b"array", process_set=0):
    return [_lib.ALLREDUCE, x, target, name, process_set, hvd.Sum, 1.0, 1.0, 0, 0]


def run_on_array(*arguments):
    """The result, also if another rank is late."""
    return _arrays.run(*arguments_of(*arguments), _lib.error)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (1,) * 8])
def test_arrays(dtype, shape):
    x = np.ones(shape, dtype)
    total = np.full(shape, hvd.size(), dtype)
    for name in (None, b"named"):
        target = np.zeros_like(x)
        assert run_on_array(x, target, name) is target
        assert target.tolist() == total.tolist()
        capsule = run_on_array(x, None, name)
        adopted = np.from_dlpack(Capsule(capsule))
        assert adopted.dtype == x.dtype and adopted.shape == shape and adopted.tolist() == total.tolist()
        assert adopted.ctypes.data % 64 == 0


def test_arrays_that_are_not_plain():
    x = np.ones(2, "float32")
    good = arguments_of(x, np.empty_like(x))

    class Odd:
        def __init__(self, **interface):
            self.dtype = x.dtype
            self.__array_interface__ = interface

    big = np.ones(1 << 15, "float32")
    odd = [
        None, 2**40, "text", (), Odd(), Odd(data=None, shape=(2,)), Odd(data=(1,), shape=2),
        Odd(data=("1",), shape=(2,)), Odd(data=(0, True), shape=(2,)), Odd(data=(-1, True), shape=(2,)),
        Odd(data=(1, True), shape=("2",)), Odd(data=(1, True), shape=(2,), strides=(8,)),
        Odd(data=(1, True), shape=(2**62, 8)), x.astype(">f4"), np.ones((2, 4), "f4")[:, ::2], np.ones(0, "f4"),
        np.ones(3, "f4"), np.ones(2, "c8"), np.ones((1,) * 9, "f4"), big,
    ]  # fmt: skip
    for at, value in itertools.product(range(10), odd):
        if (at, value is None) in ((2, True), (3, True)) or at == 1 and getattr(value, "shape", None) == (3,):
            continue
        assert _arrays.native.run_on_array(*good[:at], value, *good[at + 1 :]) is None, (at, value)
    assert _arrays.native.run_on_array() is None
    assert run_on_array(big[: 1 << 14], None) is not None
    refused = _arrays.native.run_on_array(*arguments_of(x, None, process_set=12345))
    assert refused == _lib.INVALID_ARGUMENT and "12345" in _lib.last_error()


def test_an_interrupt_while_an_array_is_asked():
    class Interrupting:
        dtype = np.dtype("float32")

        @property
        def __array_interface__(self):
            raise KeyboardInterrupt

    x = np.ones(2, "float32")
    for arguments in (arguments_of(Interrupting(), x), arguments_of(x, Interrupting())):
        with pytest.raises(KeyboardInterrupt):
            _arrays.native.run_on_array(*arguments)


def test_arrays_leave_nothing():
    x, target = np.ones(2), np.ones(2)

    def some():
        for _ in range(1000):
            assert run_on_array(x, None) is not None  # nobody adopts it
            np.from_dlpack(Capsule(run_on_array(x, None)))
            assert run_on_array(x, target) is target

    some()
    before, free, memory = (sys.getrefcount(x), sys.getrefcount(target)), len(_operations.pool.free), resident()
    some()
    assert (sys.getrefcount(x), sys.getrefcount(target)) == before and len(_operations.pool.free) == free
    assert resident() - memory < 8 << 20 and _arrays._adrift == {}
