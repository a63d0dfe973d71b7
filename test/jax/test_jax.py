"""Collectives of JAX, outside and inside of compiled programs."""

import os

import numpy as np
import pytest

DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "float16", "bfloat16", "float32", "bool"]


@pytest.fixture
def jnp(job):
    import jax.numpy

    return jax.numpy


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(job, jnp, dtype):
    n, r = job.size(), job.rank()
    x = jnp.full((2, 3), r + 1, dtype)
    if dtype != "bool":
        total = job.allreduce(x, op=job.Sum)
        assert total.dtype == x.dtype and total.shape == (2, 3)
        np.testing.assert_array_equal(np.asarray(total, "float32"), np.full((2, 3), n * (n + 1) / 2))
    gathered = job.allgather(x)
    want = np.concatenate([np.full((2, 3), i + 1) for i in range(n)]).astype(np.asarray(x).dtype)
    np.testing.assert_array_equal(np.asarray(gathered), want)
    root = job.broadcast(x, n - 1)
    np.testing.assert_array_equal(np.asarray(root), np.full((2, 3), n).astype(np.asarray(x).dtype))


def test_trees_scalars_and_empty_arrays(job, jnp):
    n, r = job.size(), job.rank()
    tree = {"a": jnp.float32(r), "b": [jnp.zeros((0, 2)), jnp.arange(3.0) + r]}
    mean = job.allreduce(tree, name="tree")
    np.testing.assert_allclose(mean["a"], (n - 1) / 2)
    assert mean["b"][0].shape == (0, 2)
    np.testing.assert_allclose(mean["b"][1], np.arange(3.0) + (n - 1) / 2)
    assert job.broadcast({}, 0) == {}
    np.testing.assert_allclose(job.broadcast(tree, 0)["a"], 0.0)


def test_reducescatter_and_scales(job, jnp):
    n, r = job.size(), job.rank()
    x = jnp.arange(2.0 * n + 1)
    got = job.reducescatter(x, op=job.Sum)
    np.testing.assert_allclose(got, np.array_split(np.arange(2.0 * n + 1) * n, n)[r])
    np.testing.assert_allclose(
        job.allreduce(x, op=job.Sum, prescale_factor=0.5, postscale_factor=4.0), np.arange(2.0 * n + 1) * 2 * n
    )
    np.testing.assert_allclose(job.allreduce(jnp.float32(r), op=job.Max), n - 1)
    np.testing.assert_allclose(job.allreduce(x, compression=job.Compression.bf16), x, rtol=1e-2)


def test_rows_may_differ_outside_of_jit(job, jnp):
    rows = job.allgather(jnp.full((job.rank() + 1, 2), job.rank(), "int32"))
    np.testing.assert_array_equal(rows[:, 0], [i for i in range(job.size()) for _ in range(i + 1)])


@pytest.mark.smoke
def test_compiled_programs(job, jnp):
    import jax

    n, r = job.size(), job.rank()

    @jax.jit
    def program(x):
        y = job.allreduce(x) * 2
        z = job.allgather(y[None] + r)
        return job.broadcast(y, 0), z, job.reducescatter(jnp.tile(x, (n, 1)), op=job.Sum)

    for step in range(3):
        x = jnp.arange(4.0) + r + step
        mean = np.arange(4.0) + (n - 1) / 2 + step
        y, z, part = program(x)
        np.testing.assert_allclose(y, 2 * mean)
        np.testing.assert_allclose(z, [2 * mean + i for i in range(n)])
        np.testing.assert_allclose(part, [mean * n], rtol=1e-6)


def test_large_arrays_in_compiled_programs(job, jnp):
    import jax

    program = jax.jit(lambda x: job.allreduce(jnp.sin(x), op=job.Sum).sum())
    x = jnp.linspace(0, 1, 1 << 20) + job.rank()
    for _ in range(3):
        want = sum(np.sin(np.linspace(0, 1, 1 << 20) + i).sum() for i in range(job.size()))
        np.testing.assert_allclose(program(x), want, rtol=1e-3)


def test_gradients(job, jnp):
    import jax

    n, r = job.size(), job.rank()

    def loss(x):
        return (job.allreduce(x, op=job.Sum) * (r + 1.0)).sum()

    for function in (jax.grad(loss), jax.jit(jax.grad(loss))):
        np.testing.assert_allclose(function(jnp.ones(3)), np.full(3, n * (n + 1) / 2))
    with pytest.raises(NotImplementedError, match="differentiable"):
        jax.grad(lambda x: job.allreduce(x, op=job.Max).sum())(jnp.ones(2))


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compression_rounds_between_hosts_only(job, jnp, compression):
    fine = 1 + 2.0**-12  # no 16-bit float
    one_host = os.environ.get("GOROVOD_TRANSPORT") != "tcp" and job.local_size() == job.size()
    expected = fine if job.size() == 1 or one_host else 1.0
    result = job.allreduce(jnp.full(3, fine), compression=getattr(job.Compression, compression))
    np.testing.assert_allclose(result, np.full(3, expected), rtol=1e-6)


def test_adasum_of_equal_and_of_orthogonal_arrays(job, jnp):
    np.testing.assert_allclose(job.allreduce(jnp.array([1.0, 2.0]), op=job.Adasum), [1, 2], rtol=1e-6)
    mine = jnp.eye(job.size())[job.rank()]
    np.testing.assert_allclose(job.allreduce(mine, op=job.Adasum), np.ones(job.size()), rtol=1e-6)


def test_objects(job):
    assert job.broadcast_object({"rank": job.rank()}, 0) == {"rank": 0}
    assert job.allgather_object("x" * job.rank()) == ["x" * i for i in range(job.size())]


def test_process_sets(job, jnp):
    import jax

    if job.size() == 1:
        pytest.skip("one rank has no other set than the world")
    last = job.add_process_set([job.size() - 1])
    try:
        if job.rank() == job.size() - 1:
            np.testing.assert_allclose(job.allreduce(jnp.float32(5), name="own", process_set=last), 5)
            np.testing.assert_allclose(job.allgather(jnp.ones(2), name="all", process_set=last), [1, 1])
            assert job.broadcast_object("own", job.rank(), process_set=last) == "own"
            assert job.allgather_object("own", process_set=last) == ["own"]
            job.allreduce(jnp.float32(5), process_set=last)
        # The others have not counted the last call.
        np.testing.assert_allclose(job.allreduce(jnp.ones(2), op=job.Sum), [job.size()] * 2)
    finally:
        number = last.process_set_id
        job.remove_process_set(last)
    last.process_set_id = number  # as a copy has it
    for call in (lambda x: job.allreduce(x, process_set=last), lambda x: job.allgather(x, process_set=last)):
        for function in (call, jax.jit(call)):
            with pytest.raises(ValueError, match=f"Unknown process set id {number}"):
                function(jnp.ones(2))


def test_errors(job, jnp):
    import jax

    with pytest.raises(ValueError, match="at least one dimension"):
        job.allgather(jnp.float32(1))
    with pytest.raises(ValueError, match="int4 are not supported"):
        job.allreduce(jnp.ones(2, "int4"))
    x = jnp.ones(2)
    for error, text, call in (
        (TypeError, "compression must be one of", lambda: job.allreduce(x, compression=99)),
        (ValueError, "unknown reduce operation 77", lambda: job.allreduce(x, op=77)),
        (ValueError, "operation Min is not possible here; use Average", lambda: job.reducescatter(x, op=job.Min)),
        (TypeError, "prescale_factor must be a number", lambda: job.allreduce(x, prescale_factor="2")),
        (TypeError, "root_rank must be an integer", lambda: job.broadcast(x, 1.5)),
        (TypeError, "name must be a str", lambda: job.allgather(x, name=3)),
        (TypeError, "process_set must be a ProcessSet", lambda: job.allgather(x, process_set=0)),
    ):
        with pytest.raises(error, match=text):
            call()
    if job.size() > 1:
        with pytest.raises((job.HorovodInternalError, ValueError), match="[Mm]ismatched"):
            job.allreduce(jnp.ones(2 + job.rank()), name="shapes")
        with pytest.raises(jax.errors.JaxRuntimeError, match="same number of rows"):
            jax.block_until_ready(jax.jit(job.allgather)(jnp.ones(2 + (job.rank() == 0))))


def test_trees_that_differ_are_named(job, jnp):
    tree = {"a": jnp.ones((2, 3), "bfloat16"), "b": [jnp.float32(1), jnp.arange(4) + (job.rank() == job.size() - 1)]}
    job.check_consistency({"a": tree["a"]})
    if job.size() > 1:
        with pytest.raises(job.ConsistencyError, match=r"\['b'\]\[1\]") as told:
            job.check_consistency(tree)
        assert list(told.value.odd_ranks) == ["['b'][1]"]
    if job.size() == 2:
        for other, words in (
            ({}, "rank 1 has no ['a'], which is float32 [2] on rank 0"),
            ({"a": jnp.ones(3)}, "['a'] is float32 [2] on rank 0, float32 [3] on rank 1"),
            ({"a": jnp.ones(2, "bfloat16")}, "['a'] is float32 [2] on rank 0, bfloat16 [2] on rank 1"),
        ):
            with pytest.raises(job.ConsistencyError) as told:
                job.check_consistency(other if job.rank() else {"a": jnp.ones(2)})
            assert str(told.value) == words
