"""The short way of calls on one small array, and the long one: both give the same results and errors."""

import gc
import sys
import time

import numpy as np
import pytest
from both_ways import by_both, interrupted

from horovod.common import _arrays, _operations

native = _arrays.native
pytestmark = pytest.mark.skipif(native is None, reason="this Python takes the way through ctypes alone")
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "float16", "bfloat16", "float32", "bool"]


@pytest.fixture
def jnp(job):
    import jax.numpy

    return jax.numpy


@pytest.fixture
def only_short(monkeypatch):
    """Fails where a call takes the long way."""
    from horovod.jax import _now

    def refuse(*args, **kwargs):
        raise AssertionError("this took the long way")

    monkeypatch.setattr(_now, "run", refuse)


def outcome(call):
    try:
        result = call()
    except Exception as e:
        return type(e).__name__, str(e)
    return type(result).__name__, repr(result)  # JAX shows type, weakness and values


def same(call):
    short, long = by_both(call, outcome)
    assert repr(short) == repr(long)
    return short


@pytest.mark.parametrize(
    "dtype, shape",
    [*((dtype, (3, 2)) for dtype in DTYPES), *(("float32", shape) for shape in [(), (1,), (3, 1, 2), (1,) * 8])],
)
def test_small_arrays(job, jnp, dtype, shape, only_short):
    x = jnp.full(shape, job.rank() + 1, dtype)
    for name in (None, "named"):
        for _ in range(3):  # the first result of a shape is made in another way
            largest = job.allreduce(x, op=job.Max, name=name)
            assert largest.dtype == x.dtype and largest.shape == shape and largest.devices() == x.devices()
            assert np.asarray(largest, "float32").max() == (job.size() if dtype != "bool" else 1)
            first = job.broadcast(x, 0, name=name)
            assert first.dtype == x.dtype and np.asarray(first, "float32").max() == 1
    assert np.asarray(x, "float32").max() == (job.rank() + 1 if dtype != "bool" else 1)


@pytest.mark.parametrize("compression", ["fp16", "bf16", "int8", "fp8"])
def test_compressed_arrays(job, jnp, compression, only_short):
    x = jnp.arange(4.0)
    for _ in range(2):
        total = job.allreduce(x, op=job.Sum, name="compressed", compression=getattr(job.Compression, compression))
        assert total.tolist() == (job.size() * x).tolist()
        assert job.allreduce(x, op=job.Sum, name="as it is").tolist() == total.tolist()


def test_ranks_that_compress_in_other_ways(job, jnp):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    compression = job.Compression.fp16 if job.rank() == 0 else job.Compression.none
    assert "compression" in same(lambda: job.allreduce(jnp.ones(2), name="ways", compression=compression))[1]


def test_the_result_has_memory_of_its_own(job, jnp):
    x = jnp.arange(3.0)
    results = [job.allreduce(x, op=job.Sum) for _ in range(20)]
    places = {result.unsafe_buffer_pointer() for result in [x, *results]}
    assert len(places) == len(results) + 1
    gc.collect()
    assert all(result.tolist() == [0.0, job.size(), 2.0 * job.size()] for result in results)


def test_what_is_not_plain(job, jnp):
    import jax

    from horovod.common.process_sets import ProcessSet

    one = jnp.ones(2)
    for array in (
        one, jnp.zeros(0), jnp.ones((2, 0, 3)), jnp.ones(1 << 16), jnp.ones((1,) * 9), 1.0, np.ones(2), [1.0], "text",
        {"a": one}, jnp.ones(2, "complex64"), jax.random.key(1), jnp.arange(6.0).reshape(2, 3).T, jnp.float32(2),
        jnp.array([np.nan]), jnp.ones(2, "float8_e4m3fn"), jax.device_put(one, jax.devices()[0]),
    ):  # fmt: skip
        for call in (lambda x: job.allreduce(x, op=job.Sum), lambda x: job.broadcast(x, 0)):
            if isinstance(array, dict):
                array, call = array["a"], lambda x, call=call: call({"a": x})["a"]
            same(lambda array=array, call=call: call(array))
    unknown = ProcessSet([0])
    unknown.process_set_id = 12345
    for argument, values in {
        "name": ["", "n" * 400, "ä", "\ud800", "a\0b", 3, b"bytes"],
        "op": [None, job.Average, job.Min, job.Product, job.Adasum, 6, -1, 2**40, True, "Sum", 1.0],
        "prescale_factor": [0.5, 2, True, "1", None, float("nan")],
        "postscale_factor": [0.5, 2, True, "1", None, float("inf")],
        "average": [True, False],
        "compression": [job.Compression.fp16, job.Compression.int8, True, 77, None],
        "process_set": [unknown, 0, None, ProcessSet([0])],
    }.items():
        for value in values:
            same(lambda argument=argument, value=value: job.allreduce(one, **{argument: value}))
    for root in (0, True, -1, 10**6, 2**40, 1.0, None, "0"):
        same(lambda root=root: job.broadcast(one, root))


def allreduces(job):
    """How many tensors have been reduced."""
    return sum(tensors["count"] for tensors in job.metrics()["tensors"] if tensors["op"] == "allreduce")


def test_amid_compilation(job, jnp):
    import jax

    x = jnp.ones(3)
    for _ in range(3):
        job.allreduce(x, op=job.Sum)
    for constant in (x, np.ones(3, "float32")):  # the collective belongs to the program: each run reduces
        program = jax.jit(lambda y, constant=constant: y + job.allreduce(constant, op=job.Sum, name="constant"))
        assert "ArrayImpl" in same(lambda program=program: program(x))[0]
        before = allreduces(job)
        assert program(x).tolist() == [1.0 + job.size()] * 3
        assert allreduces(job) == before + 1
    again = jax.vmap(lambda y: y + job.allreduce(x, op=job.Sum))(jnp.ones((2, 3)))  # no program
    assert again.tolist() == [[1.0 + job.size()] * 3] * 2
    assert jax.grad(lambda y: (y * job.broadcast(x, 0)).sum())(x).tolist() == [1.0] * 3
    with jax.disable_jit():
        result = job.allreduce(x, op=job.Sum)
        assert isinstance(result, jax.Array) and result.tolist() == [float(job.size())] * 3


def test_failures(job, jnp):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    assert "shapes" in same(lambda: job.allreduce(jnp.ones(2 + job.rank()), name="mismatched"))[1]
    assert _arrays._adrift == {}


def test_a_late_rank(job, jnp):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    if job.rank() == 0:
        time.sleep(0.3)  # longer than the extension waits
    assert job.allreduce(jnp.ones(3), op=job.Sum, name="late").tolist() == [float(job.size())] * 3
    assert _arrays._adrift == {}


def test_an_interrupt(job, jnp):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    x = jnp.ones(10)
    if job.rank() == 0:
        interrupted(job, lambda: job.allreduce(x, name="interrupted", op=job.Sum))
        assert _operations._abandoned[-1].operations[0].keeps[0].tolist() == [1.0] * 10
    job.allreduce(jnp.ones(1))
    if job.rank() != 0:
        assert job.allreduce(x, name="interrupted", op=job.Sum).tolist() == [float(job.size())] * 10
    job.allreduce(jnp.ones(1))
    assert _arrays._adrift == {}


def test_nothing_leaks(job, jnp):
    x = jnp.ones(2)

    def some():
        for _ in range(2000):
            job.allreduce(x, op=job.Sum, name="leaks")

    some()
    before, free = sys.getrefcount(x), len(_operations.pool.free)
    some()
    assert (sys.getrefcount(x), len(_operations.pool.free)) == (before, free)
