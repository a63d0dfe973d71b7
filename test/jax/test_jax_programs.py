"""Collectives as operations of compiled programs: in any order, in loops, batched, differentiated, and failing."""

import functools
import re

import numpy as np
import pytest

DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "float16", "bfloat16", "float32", "bool"]


@pytest.fixture
def jax(job):
    import jax

    from horovod.jax import _library

    assert _library.usable("cpu")
    return jax


@pytest.fixture
def total(job):
    """A function that sums arrays over the ranks."""
    return functools.partial(job.allreduce, op=job.Sum)


def test_programs_call_no_python(job, jax, total):
    text = jax.jit(lambda x: (total(x), job.allgather(x), job.broadcast(x, 0))).lower(np.ones(2, "float32")).as_text()
    assert "gorovod_collective" in text and "callback" not in text


def test_programs_for_cuda_have_collectives_in_the_order_of_the_source(job, jax, total):
    def program(x):
        first, rows = total(x, name="first"), job.allgather(x, name="rows")
        inner = jax.lax.fori_loop(0, 3, lambda _, x: job.broadcast(job.allreduce(x, name="in"), 0, name="root"), x)
        return first, rows, inner, jax.grad(lambda x: total(x, name="last").sum())(x)

    names = ["first", "rows", "last", "last.gradient", "in", "root"]
    text = jax.jit(program).trace(np.ones((2, 3), "float32")).lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"(%\w+):2 = stablehlo.custom_call @gorovod_collective\((.*?)\) .*?name = \"(.*?)\"", text)
    assert [name for _, _, name in calls] == names and "callback" not in text
    results, operands = [result for result, _, _ in calls], [given for _, given, _ in calls]
    follows = [f"{before}#1" in given for before, given in zip(results, operands[1:])]
    assert follows == [True, True, True, False, True]  # a loop's body has an order of its own


def test_arrays_of_gpus_become_programs_of_their_own(job, jax):
    """How arrays of GPUs are reduced outside of compiled programs, tested on the CPU."""
    from horovod.common import _lib
    from horovod.jax import _collective, _placement
    from horovod.jax._host import Operation

    n, r = job.size(), job.rank()
    assert not _placement.takes([jax.numpy.ones(2)])

    def run(name, *arrays, shapes=None, kind=_lib.ALLREDUCE):
        return _collective.run(Operation(kind, name, 0, reduce_op=job.Sum), shapes, arrays)

    x = jax.numpy.full(3, r + 1.0)
    want = np.full(3, n * (n + 1) / 2)
    for _ in range(3):
        np.testing.assert_allclose(run("", x)[0], want)
        np.testing.assert_allclose(run("named", x)[0], want)
        np.testing.assert_allclose(run("group", x, 2 * x)[1], 2 * want)
        np.testing.assert_allclose(run("", x, 2 * x)[1], 2 * want)  # a group without a name
        np.testing.assert_allclose(job.allreduce(x, op=job.Sum), want)  # the engine has counted those
        own = run("own", jax.numpy.ones((n, 2)), shapes=((1, 2),), kind=_lib.REDUCESCATTER)
        np.testing.assert_allclose(own[0], np.full((1, 2), n))
    assert jax.jit(lambda y: y + run("while tracing", x)[0])(x).shape == (3,)
    with jax.disable_jit():
        np.testing.assert_allclose(run("not compiled", x)[0], want)
    if n > 1:
        with pytest.raises(job.HorovodInternalError, match="^Mismatched ALLREDUCE tensor shapes"):
            run("shapes", jax.numpy.ones(2 + r))
    with pytest.raises(ValueError, match="float8_e5m2"):
        run("eight bits", x.astype("float8_e5m2"))
    with pytest.raises(ValueError, match="int4 are not supported"):
        run("four bits", x.astype("int4"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(job, jax, total, dtype):
    n, r = job.size(), job.rank()

    @jax.jit
    def program(tree):
        sums = None if dtype == "bool" else total(tree)
        return sums, job.allgather(tree["rows"]), job.broadcast(tree, n - 1)

    tree = {"rows": jax.numpy.full((2, 3), r + 1, dtype), "none": jax.numpy.zeros((0, 2), dtype)}
    if dtype != "bool":
        tree["scalar"] = jax.numpy.asarray(r + 1, dtype)
    sums, rows, root = program(tree)
    want = np.concatenate([np.full((2, 3), i + 1) for i in range(n)]).astype(tree["rows"].dtype)
    np.testing.assert_array_equal(np.asarray(rows), want)
    np.testing.assert_array_equal(np.asarray(root["rows"]), want[-2:])
    if sums is not None:
        assert sums["none"].shape == (0, 2) and sums["scalar"].dtype == tree["scalar"].dtype
        assert float(sums["scalar"]) == n * (n + 1) / 2
        np.testing.assert_array_equal(np.asarray(sums["rows"], "float32"), np.full((2, 3), n * (n + 1) / 2))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", ["uint32", "uint64", "complex64", "complex128", "float8_e4m3fn"])
def test_types_that_move(job, jax, dtype, compiled):
    n, r = job.size(), job.rank()
    run = jax.jit if compiled else lambda function: function
    with jax.enable_x64(True):
        largest = 2 ** (8 * jax.numpy.dtype(dtype).itemsize) - 10 if dtype[0] == "u" else 200
        x = jax.numpy.asarray(np.full((2, 3), largest), dtype) + jax.numpy.asarray(r, dtype)
        if dtype[0] == "c":
            x = x * (1 + 2j)
        tree = {"rows": x, "scalar": x[0, 0], "none": x[:0]}
        rows = run(job.allgather)(x)
        root = run(lambda tree: job.broadcast(tree, n - 1))(tree)
        assert rows.dtype == x.dtype and root["scalar"].dtype == x.dtype and root["none"].shape == (0, 3)
        np.testing.assert_array_equal(np.asarray(rows[2 * r : 2 * r + 2]), np.asarray(x))
        np.testing.assert_array_equal(np.asarray(root["rows"]), np.asarray(rows[-2:]))
        np.testing.assert_array_equal(np.asarray(root["scalar"]), np.asarray(rows[-1, 0]))
        if dtype[0] != "c":
            for reduce in (job.allreduce, job.reducescatter):
                with pytest.raises(ValueError, match=f"{dtype} are not supported in {reduce.__name__}: convert"):
                    run(reduce)(x)


@pytest.mark.parametrize("compiled", [True, False])
def test_keys(job, jax, compiled):
    """Keys of each kind, compared by the numbers that they make."""
    run = jax.jit if compiled else lambda function: function
    for make in (jax.random.key, jax.random.PRNGKey, functools.partial(jax.random.key, impl="rbg")):
        root, own = run(lambda key: (job.broadcast(key, 0), job.allgather(key[None])))(make(7 + job.rank()))
        assert root.dtype == make(7).dtype and root.shape == make(7).shape
        for key, number in zip([root, *own], [7, *range(7, 7 + job.size())]):
            np.testing.assert_array_equal(jax.random.normal(key, (3,)), jax.random.normal(make(number), (3,)))
    key = jax.random.key(job.rank())
    keys = run(jax.vmap(lambda key: job.broadcast(key, 0)))(jax.random.split(key, 5))
    assert bool((keys == jax.random.split(jax.random.key(0), 5)).all())
    with pytest.raises(ValueError, match=r"key<fry> are not supported in allreduce"):
        run(job.allreduce)(key)
    with pytest.raises(ValueError, match="int4 are not supported"):
        run(job.allgather)(jax.numpy.ones(2, "int4"))


@pytest.mark.parametrize("compiled", [True, False])
def test_sums_of_complex_numbers(job, jax, total, compiled):
    n, r, ranks = job.size(), job.rank(), sum(range(job.size()))
    run = jax.jit if compiled else lambda function: function
    x = jax.numpy.full((n, 2), 1 + 1j * r)
    np.testing.assert_allclose(run(total)(x), np.full((n, 2), n + 1j * ranks))
    np.testing.assert_allclose(run(job.allreduce)(x), np.full((n, 2), 1 + 1j * ranks / n), rtol=1e-6)
    np.testing.assert_allclose(run(lambda x: job.reducescatter(x, op=job.Sum))(x), np.full((1, 2), n + 1j * ranks))
    slope = run(jax.grad(lambda y: (abs(total(y * (1 + 1j), name="slope")) ** 2).sum()))(jax.numpy.ones(2))
    np.testing.assert_allclose(slope, np.full(2, 4 * n * n), rtol=1e-5)
    with pytest.raises(ValueError, match="complex64 are not supported with this op: use Average or Sum"):
        run(lambda x: job.allreduce(x, op=job.Max))(x)


def in_opposite_orders(job, total, x, names=("p", "q", "s")):
    order = names if job.rank() % 2 == 0 else names[::-1]
    sums = {name: total(x * (names.index(name) + 1), name=name) for name in order}
    return [sums[name] for name in names]


@pytest.mark.parametrize("length", [1, 100_000])
def test_names_match_collectives_in_opposite_orders(job, jax, total, length):
    program = jax.jit(functools.partial(in_opposite_orders, job, total))
    for step in range(3):
        sums = program(jax.numpy.full(length, job.rank() + step, "float32"))
        want = sum(range(job.size())) + step * job.size()
        np.testing.assert_allclose([a[-1] for a in sums], [want, 2 * want, 3 * want])


def test_chains_in_opposite_orders(job, jax, total):
    def chain(name, x):
        return total(jax.numpy.sin(total(x, name=name)) * job.rank(), name=f"{name}.second")

    @jax.jit
    def program(x):
        names = ("one", "two") if job.rank() % 2 == 0 else ("two", "one")
        found = {name: chain(name, x if name == "one" else 2 * x) for name in names}
        return found["one"], found["two"]

    ranks = sum(range(job.size()))
    got = program(jax.numpy.ones(300))
    np.testing.assert_allclose(got[0], np.full(300, np.sin(job.size()) * ranks), rtol=1e-5)
    np.testing.assert_allclose(got[1], np.full(300, np.sin(2 * job.size()) * ranks), rtol=1e-5)


def test_loops(job, jax, total):
    n, r, ranks = job.size(), job.rank(), sum(range(job.size()))

    def body(carry, x):
        first, second, _ = in_opposite_orders(job, total, x, ("loop.p", "loop.q", "loop.s"))
        return carry + first, second

    last, rows = jax.jit(lambda xs: jax.lax.scan(body, jax.numpy.float32(0), xs))(jax.numpy.arange(4.0) + r)
    np.testing.assert_allclose(rows, [2 * (n * i + ranks) for i in range(4)])
    np.testing.assert_allclose(last, 6 * n + 4 * ranks)
    three = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: total(x, name="again"), x))
    np.testing.assert_allclose(three(jax.numpy.float32(1)), n**3)


def test_one_call_at_several_places(job, jax, total):
    """An inner function that is called three times, and a loop that is unrolled by three."""
    n, ranks = job.size(), sum(range(job.size()))
    inner = jax.jit(total)
    for x in (job.rank(), job.rank() + 1):
        got = jax.jit(lambda x: (inner(x), inner(10 * x), inner(100 * x)))(jax.numpy.float32(x))
        np.testing.assert_allclose(got, np.array([1, 10, 100]) * (ranks + (x - job.rank()) * n))
    unrolled = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c, total(x, name="same")), 0.0, xs, unroll=3)[1])
    np.testing.assert_allclose(unrolled(jax.numpy.arange(7.0) + job.rank()), [n * i + ranks for i in range(7)])


def test_shard_map(job, jax, total):
    from jax.sharding import AxisType, PartitionSpec

    mesh = jax.make_mesh((1,), ("devices",), axis_types=(AxisType.Auto,))
    where = PartitionSpec("devices")
    program = jax.jit(jax.shard_map(lambda x: total(x) + job.rank(), mesh=mesh, in_specs=where, out_specs=where))
    np.testing.assert_allclose(program(jax.numpy.ones((2, 3))), np.full((2, 3), job.size() + job.rank()))


def test_batches(job, jax, total):
    n, r = job.size(), job.rank()
    x = jax.numpy.arange(6.0).reshape(2, 3) + 10 * r
    gathered = np.concatenate([np.arange(6.0).reshape(2, 3) + 10 * i for i in range(n)])
    for compiled in (jax.jit, lambda function: function):
        batched = compiled(jax.vmap(lambda x: (total(x), job.allgather(x)), in_axes=1, out_axes=1))
        sums, rows = batched(x)
        np.testing.assert_allclose(sums, np.arange(6.0).reshape(2, 3) * n + 10 * sum(range(n)))
        np.testing.assert_allclose(rows, gathered)
    parts = jax.jit(jax.vmap(lambda x: job.reducescatter(x, op=job.Sum)))(jax.numpy.arange(3.0)[:, None] + np.zeros(n))
    np.testing.assert_allclose(parts, n * np.arange(3.0)[:, None])
    with pytest.raises(NotImplementedError, match="Adasum cannot be batched"):
        jax.vmap(functools.partial(job.allreduce, op=job.Adasum))(x)


def test_derivatives(job, jax, total):
    n, r, ranks = job.size(), job.rank(), sum(range(job.size()))
    x = jax.numpy.ones(2) * r
    remembered = jax.checkpoint(lambda x: jax.numpy.sin(total(x, name="remembered")).sum())
    np.testing.assert_allclose(jax.jit(jax.grad(remembered))(x), np.full(2, n * np.cos(ranks)), rtol=1e-5)
    cubes = jax.hessian(lambda x: (job.allreduce(x, name="cubes") ** 3).sum())
    np.testing.assert_allclose(jax.jit(cubes)(jax.numpy.ones(2)), np.diag([6.0, 6.0]), rtol=1e-5)
    _, change = jax.jvp(functools.partial(total, name="forward"), (x,), (jax.numpy.ones(2) * (r + 1),))
    np.testing.assert_allclose(change, np.full(2, ranks + n))

    def loss(tree):  # the maximum has no derivative, and needs none
        return total(tree, name="tree")["x"].sum(), job.allreduce(tree["x"], op=job.Max, name="largest")

    (_, largest), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))({"x": x})
    np.testing.assert_allclose(largest, np.full(2, n - 1))
    np.testing.assert_allclose(gradient["x"], np.full(2, n))


def test_unused_results_and_donated_arrays(job, jax, total):
    n, r = job.size(), job.rank()
    jax.block_until_ready(jax.jit(lambda x: (total(x, name="unused"), x)[r % 2])(jax.numpy.ones(2)))
    given = jax.jit(lambda x: (total(x, name="given"), x + 1), donate_argnums=0)
    x = jax.numpy.full(1000, r + 1.0)
    for _ in range(3):
        before = np.array(x)
        sums, x = given(x)
        np.testing.assert_allclose(x, before + 1)
        np.testing.assert_allclose(sums, n * (before - r) + sum(range(n)))


def test_many_steps_under_way(job, jax, total):
    """Calls of a program that nobody waits for, of arrays that take longer than a thread of XLA waits."""
    program = jax.jit(lambda x: [total(x * i, name=f"large.{i}") for i in range(3)])
    x = jax.numpy.ones(1 << 20)
    results = [program(x * step) for step in range(6)]
    for step, sums in enumerate(results):
        np.testing.assert_allclose([a[-1] for a in sums], [job.size() * i * step for i in range(3)])


def test_process_sets(job, jax):
    if job.size() == 1:
        pytest.skip("one rank has no other set than the world")
    last = job.add_process_set([job.size() - 1])
    try:
        if job.rank() == job.size() - 1:
            alone = jax.jit(lambda x: job.allreduce(x, op=job.Sum, process_set=last))
            np.testing.assert_allclose(alone(jax.numpy.float32(5)), 5)
        # The others have not traced the last call.
        everywhere = jax.jit(lambda x: job.allreduce(x, op=job.Sum))
        np.testing.assert_allclose(everywhere(jax.numpy.float32(1)), job.size())
    finally:
        job.remove_process_set(last)


def test_errors_and_the_world_after_them(job, jax, total):
    r = job.rank()
    if job.size() > 1:
        for text, call in (
            ("HorovodInternalError: Mismatched ALLREDUCE tensor shapes", total),
            ("ValueError: .*same number of rows, which gives", job.allgather),
        ):
            with pytest.raises(jax.errors.JaxRuntimeError, match=text):
                jax.block_until_ready(jax.jit(call)(jax.numpy.ones((2 + (r == 0), 3))))
    with pytest.raises(ValueError, match="int4 are not supported"):
        jax.jit(total)(jax.numpy.ones(2, "int4"))
    program = jax.jit(functools.partial(total, name="before and after"))
    np.testing.assert_allclose(program(jax.numpy.ones(2)), [job.size()] * 2)
    job.shutdown()
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"use hvd.init\(\)") as caught:
        jax.block_until_ready(program(jax.numpy.ones(2)))
    assert isinstance(job.elastic.internal_error(caught.value), job.HorovodInternalError)
    for call in (program, jax.jit(functools.partial(total, name="new"))):
        with pytest.raises(job.HorovodInternalError, match=r"use hvd.init\(\)"), job.internal_errors():
            jax.block_until_ready(call(jax.numpy.ones(2)))
    with pytest.raises(ValueError, match="another"), job.internal_errors():
        raise ValueError("another")
    job.init()
    np.testing.assert_allclose(program(jax.numpy.ones(2)), [job.size()] * 2)
