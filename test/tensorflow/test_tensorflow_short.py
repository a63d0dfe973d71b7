"""The short way of eager calls on one small tensor, and TensorFlow's operations: the same results and errors."""

import gc
import re
import sys
import time

import numpy as np
import pytest
from both_ways import by_both, interrupted

from horovod.common import _arrays, _operations

tf = pytest.importorskip("tensorflow")
native = _arrays.native
pytestmark = pytest.mark.skipif(native is None, reason="this Python takes TensorFlow's operations alone")
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]


@pytest.fixture
def only_short(monkeypatch):
    """Fails where a call takes the long way."""
    from horovod.tensorflow import mpi_ops

    monkeypatch.setattr(mpi_ops, "_native", None)


def outcome(call):
    """The value, or the error's type and reason: TensorFlow adds where its operation ran."""
    try:
        result = call()
    except Exception as e:
        text = re.sub(r"\{\{[^}]*\}\} |\[Op:.*", "", str(e)).strip()
        return type(e).__name__, text
    return type(result).__name__, result.dtype, result.shape, result.device, repr(np.asarray(result))


def same(call):
    short, long = by_both(call, outcome)
    assert short == long
    return short


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3, 1, 2), (1,) * 8])
def test_small_tensors(job, dtype, shape, only_short):
    x = tf.cast(tf.fill(shape, job.rank() + 1), dtype)
    if dtype == "bfloat16" and shape == ():
        pytest.skip("TensorFlow shows no array of it")
    for name in (None, "named"):
        assert set(np.asarray(job.broadcast(x, 0, name=name), "float64").flatten()) == {1.0}
        if dtype in ("uint16", "int16"):  # the operation refuses them
            continue
        total = job.allreduce(x, op=job.Sum, name=name)
        assert type(total) is type(x) and total.dtype == x.dtype and total.shape == x.shape
        assert total.device == x.device
        assert set(np.asarray(total, "float64").flatten()) == {job.size() * (job.size() + 1) / 2}
        # TensorFlow's own operations take the result.
        assert set(np.asarray(tf.cast(total, "float64") + 1).flatten()) == {job.size() * (job.size() + 1) / 2 + 1}
    assert set(np.asarray(x, "float64").flatten()) == {job.rank() + 1}


@pytest.mark.parametrize("compression", ["fp16", "bf16", "int8", "fp8"])
def test_compressed_tensors(job, compression, only_short):
    x = tf.range(4.0)
    for _ in range(2):
        total = job.allreduce(x, op=job.Sum, name="compressed", compression=getattr(job.Compression, compression))
        assert total.numpy().tolist() == (job.size() * x).numpy().tolist()
        assert job.allreduce(x, op=job.Sum, name="as it is").numpy().tolist() == total.numpy().tolist()


def test_ranks_that_compress_in_other_ways(job):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    compression = job.Compression.fp16 if job.rank() == 0 else job.Compression.none
    assert "compression" in same(lambda: job.allreduce(tf.ones(2), name="ways", compression=compression))[1]


def test_the_result_has_memory_of_its_own(job):
    x = tf.range(3.0)
    results = [job.allreduce(x, op=job.Sum) for _ in range(50)]
    del x
    gc.collect()
    assert all(result.numpy().tolist() == [0.0, job.size(), 2.0 * job.size()] for result in results)
    assert all(np.asarray(result).ctypes.data % 64 == 0 for result in results)


def test_what_is_not_plain(job):
    from horovod.common.process_sets import ProcessSet

    one = tf.ones(2)
    for tensor in (
        one, tf.zeros(0), tf.ones((2, 0, 3)), tf.ones(1 << 16), tf.ones((1,) * 9), 1.0, np.ones(2), [1.0], "text", None,
        tf.ones(2, tf.complex64), tf.constant([True]), tf.ones(2, tf.int16), tf.constant(["text"]),
        tf.Variable([1.0, 2.0]), tf.constant([np.nan]), tf.ragged.constant([[1.0], [2.0, 3.0]]),
    ):  # fmt: skip
        same(lambda tensor=tensor: job.allreduce(tensor, op=job.Sum, name="odd"))
        same(lambda tensor=tensor: job.broadcast(tensor, 0, name="odd"))
    unknown = ProcessSet([0])
    unknown.process_set_id = 12345
    for argument, values in {
        "name": ["", "n" * 400, "ä", "a\0b", 3, b"bytes"],
        "op": [None, job.Average, job.Min, job.Product, job.Adasum, 6, -1, 2**40, True, "Sum", 1.0],
        "prescale_factor": [0.5, 2, True, "1", None, float("nan")],
        "postscale_factor": [0.5, 2, True, "1", None, float("inf")],
        "average": [True, False],
        "compression": [job.Compression.fp16, job.Compression.int8, 77, None],
        "device_dense": ["", "/cpu:0"],
        "process_set": [unknown, 0, None, ProcessSet([0])],
    }.items():
        for value in values:
            arguments = {"name": "odd", argument: value}
            same(lambda arguments=arguments: job.allreduce(one, **arguments))
    for root in (0, True, -1, 10**6, 2**40, 1.0, None, "0"):
        same(lambda root=root: job.broadcast(one, root, name="odd"))


def test_what_records_gets_an_operation(job):
    x = tf.constant([2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = job.allreduce(x * x, op=job.Sum, name="taped")
    np.testing.assert_allclose(tape.gradient(y, x), 2 * job.size() * x)
    with tf.autodiff.ForwardAccumulator(x, tf.ones(2)) as accumulator:
        y = job.allreduce(x, op=job.Sum, name="forward") if job.size() == 1 else x
    assert accumulator.jvp(y) is not None
    compiled = tf.function(lambda x: job.allreduce(x, op=job.Sum, name="compiled"))
    np.testing.assert_allclose(compiled(x), job.size() * x)


def test_failures(job):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    kind, text = same(lambda: job.allreduce(tf.ones(2 + job.rank()), name="mismatched"))
    assert kind == "FailedPreconditionError" and text.startswith("mismatched: ")
    assert _arrays._adrift == {}


def test_a_late_rank(job):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    if job.rank() == 0:
        time.sleep(0.3)  # longer than the extension waits
    assert job.allreduce(tf.ones(3), op=job.Sum, name="late").numpy().tolist() == [float(job.size())] * 3
    assert _arrays._adrift == {}


def test_an_interrupt(job):
    if job.size() == 1:
        pytest.skip("needs two ranks")
    x = tf.ones(10)
    if job.rank() == 0:
        interrupted(job, lambda: job.allreduce(x, name="interrupted", op=job.Sum))
        assert _operations._abandoned[-1].operations[0].keeps[0].tolist() == [1.0] * 10
    job.allreduce(tf.ones(1))
    if job.rank() != 0:
        assert job.allreduce(x, name="interrupted", op=job.Sum).numpy().tolist() == [float(job.size())] * 10
    job.allreduce(tf.ones(1))
    assert _arrays._adrift == {}


def test_nothing_leaks(job):
    x = tf.ones(2)

    def some():
        for _ in range(2000):
            job.allreduce(x, op=job.Sum, name="leaks")

    some()
    before = sys.getrefcount(x), len(_operations.pool.free)
    some()
    assert (sys.getrefcount(x), len(_operations.pool.free)) == before
