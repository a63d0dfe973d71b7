"""JAX's arrays on real GPUs with CUDA, which ranks share if there are fewer GPUs. Skipped where there is none.

``make test-gpu`` runs them with each value of GOROVOD_GPU. JAX_PLATFORMS must name cuda first, as in ``cuda,cpu``.
"""

import functools
import json
import os
import time

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy


def gpus():
    try:
        return jax.local_devices(backend="cuda")
    except RuntimeError:
        return []


pytestmark = pytest.mark.skipif(not gpus(), reason="jax.devices('cuda') fails: there is no GPU, or JAX has no CUDA")

MODE = os.environ.get("GOROVOD_GPU", "auto")
BY_HOST = "MEMCPY_IN_HOST_BUFFER"  # of the timeline
SUMS = ["uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
MOVES = ["bool", "uint32", "float8_e4m3fn"]
LARGE = 4096


@pytest.fixture(scope="module")
def device(job):
    from horovod.jax import _library

    mine = gpus()[job.local_rank() % len(gpus())]
    jax.config.update("jax_default_device", mine)
    assert _library.platform() == "cuda" and _library.usable("cuda")
    return mine


@pytest.fixture(params=["compiled", "at once"])
def run(request):
    return jax.jit if request.param == "compiled" else lambda function: function


def late(x):
    """``x``, after the GPU has worked for some hundredths of a second."""
    ones = jnp.full((LARGE, LARGE), 1 / LARGE)  # its square is the same
    for _ in range(12):
        ones = ones @ ones
    return x + (ones[0, 0] - 1 / LARGE).astype(x.dtype)


def on(device, *arrays):
    return all(array.devices() == {device} for array in arrays)


@pytest.mark.parametrize("dtype", SUMS)
def test_sums(job, device, run, dtype):
    n, r = job.size(), job.rank()
    with jax.enable_x64(True):
        tree = {
            "rows": jnp.asarray(np.arange(6).reshape(2, 3) + r, dtype),
            "scalar": jnp.asarray(r + 1, dtype),
            "none": jnp.zeros((0, 3), dtype),
        }
        sums, scattered = run(
            lambda tree: (
                job.allreduce(tree, op=job.Sum, name=f"sum.{dtype}"),
                job.reducescatter(jnp.tile(tree["rows"], (n, 1)), op=job.Sum, name=f"own.{dtype}"),
            )
        )(tree)
        want = n * np.arange(6).reshape(2, 3) + sum(range(n))
        assert on(device, *sums.values(), scattered)
        assert sums["rows"].dtype == dtype and sums["none"].shape == (0, 3)
        np.testing.assert_array_equal(np.asarray(sums["rows"], "complex64"), want)
        np.testing.assert_array_equal(np.asarray(scattered, "complex64"), want)
        assert complex(sums["scalar"]) == n * (n + 1) / 2
        np.testing.assert_array_equal(np.asarray(tree["rows"], "complex64"), np.arange(6).reshape(2, 3) + r)


@pytest.mark.parametrize("dtype", [*SUMS, *MOVES])
def test_moves(job, device, run, dtype):
    n, r = job.size(), job.rank()
    with jax.enable_x64(True):
        x = jnp.asarray((np.arange(6).reshape(2, 3) + r) % (2 if dtype == "bool" else 100), dtype)
        all_rows, root = run(
            lambda x: (job.allgather(x, name=f"rows.{dtype}"), job.broadcast(x, n - 1, name=f"root.{dtype}"))
        )(x)
        assert on(device, all_rows, root) and all_rows.dtype == root.dtype == x.dtype
        bits = [np.asarray(a).view(np.uint8).tolist() for a in (all_rows[2 * r : 2 * r + 2], x)]
        assert bits[0] == bits[1]
        assert np.asarray(all_rows[-2:]).view(np.uint8).tolist() == np.asarray(root).view(np.uint8).tolist()


def test_other_operations(job, device, run):
    n, r = job.size(), job.rank()
    x = jnp.arange(4.0) + r
    for op, want in [
        (job.Average, np.arange(4.0) + (n - 1) / 2),
        (job.Min, np.arange(4.0)),
        (job.Max, np.arange(4.0) + n - 1),
        (job.Product, np.prod([np.arange(4.0) + i for i in range(n)], axis=0)),
    ]:
        got = run(lambda x, op=op: job.allreduce(x, op=op, name=f"op.{op}"))(x)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    scaled = functools.partial(job.allreduce, op=job.Sum, prescale_factor=0.5, postscale_factor=4.0, name="scaled")
    np.testing.assert_allclose(run(scaled)(x), 2 * (n * np.arange(4.0) + sum(range(n))), rtol=1e-6)
    adasum = functools.partial(job.allreduce, op=job.Adasum, name="adasum")
    np.testing.assert_allclose(run(adasum)(jnp.ones(4)), np.ones(4))


def test_uneven_rows_outside_of_programs(job, device):
    n, r = job.size(), job.rank()
    rows = job.allgather(jnp.full((r + 1, 2), float(r)))
    np.testing.assert_array_equal(rows, np.repeat(np.arange(n), np.arange(n) + 1)[:, None] * np.ones(2))


def test_floats_of_8_bits(job, device):
    if MODE != "nccl" or job.nccl_built() < 22400 or float(device.compute_capability) < 9:
        pytest.skip("NCCL combines floats of 8 bits since 2.24, on GPUs of compute capability 9.0")
    sums = jax.jit(functools.partial(job.allreduce, op=job.Sum, name="8 bits"))(jnp.ones(64, "float8_e4m3fn"))
    assert sums.dtype == "float8_e4m3fn" and (sums.astype("float32") == job.size()).all()


def test_results_after_long_kernels(job, device, run):
    n, r = job.size(), job.rank()
    slow = jax.jit(late)
    for step in range(3):
        x = slow(jnp.full(1 << 20, float(r + step)))  # the GPU has just begun
        got = run(lambda x: job.allreduce(x, op=job.Sum, name="late") * 2)(x)
        assert (got == 2.0 * (sum(range(n)) + n * step)).all()
    program = jax.jit(lambda x: late(job.allreduce(late(x), op=job.Sum, name="amid")))
    assert (program(jnp.full(1 << 20, float(r))) == float(sum(range(n)))).all()


def test_memory_is_not_used_again_too_early(job, device):
    """Nobody waits for these programs, and their arrays are dropped or donated."""
    n = job.size()

    def step(x):
        sums = [job.allreduce(x * i, op=job.Sum, name=f"reuse.{i}") for i in range(1, 4)]
        return x + 1, [s.at[0].add(1) for s in sums]

    program = jax.jit(step, donate_argnums=0)
    x, found = jnp.zeros(1 << 18), []
    for _ in range(20):
        x, sums = program(x)
        found.append([s[-2:] for s in sums])
        del sums
    for i, sums in enumerate(found):
        for k, s in enumerate(sums):
            np.testing.assert_allclose(s, np.full(2, float((k + 1) * i * n)))


def test_loops_branches_and_batches(job, device):
    from jax.sharding import AxisType, Mesh, PartitionSpec

    n, r = job.size(), job.rank()
    total = functools.partial(job.allreduce, op=job.Sum)
    three = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: total(x, name="again"), x))
    assert float(three(jnp.float32(1))) == n**3
    scanned = jax.jit(lambda xs: jax.lax.scan(lambda c, x: (c + 1, total(x, name="scan") + c), 0.0, xs)[1])
    np.testing.assert_allclose(scanned(jnp.arange(4.0) + r), [n * i + sum(range(n)) + i for i in range(4)])
    branch = jax.jit(lambda p, x: jax.lax.cond(p, lambda x: total(x, name="yes"), lambda x: total(x, name="no") * 2, x))
    assert float(branch(True, jnp.float32(1))) == n and float(branch(False, jnp.float32(1))) == 2 * n
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(jax.jit(jax.vmap(total, in_axes=1, out_axes=1))(x), n * np.arange(6.0).reshape(2, 3))
    inner = jax.jit(total)
    np.testing.assert_allclose(jax.jit(lambda x: (inner(x), inner(10 * x)))(jnp.float32(1)), [n, 10 * n])
    mesh = Mesh(np.array([device]), ("devices",), axis_types=(AxisType.Auto,))
    where = PartitionSpec("devices")
    mapped = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=where, out_specs=where))
    np.testing.assert_allclose(mapped(jax.device_put(jnp.ones((2, 3)), device)), np.full((2, 3), float(n)))
    jax.block_until_ready(jax.jit(lambda x: (total(x, name="unused"), x)[1])(jnp.ones(2)))


def test_derivatives(job, device, run):
    n, r = job.size(), job.rank()
    loss = jax.checkpoint(lambda x: (job.allreduce(x, op=job.Sum, name="loss") ** 2).sum())
    got = run(jax.grad(loss))(jnp.full(3, r + 1.0))
    np.testing.assert_allclose(got, np.full(3, 2.0 * n * n * (n + 1) / 2), rtol=1e-6)
    cubes = jax.hessian(lambda x: (job.allreduce(x, name="cubes") ** 3).sum())
    np.testing.assert_allclose(jax.jit(cubes)(jnp.ones(2)), np.diag([6.0, 6.0]), rtol=1e-5)


def test_process_sets(job, device):
    if job.size() == 1:
        pytest.skip("one rank has no other set than the world")
    last = job.add_process_set([job.size() - 1])
    try:
        if job.rank() == job.size() - 1:
            alone = jax.jit(lambda x: job.allreduce(x, op=job.Sum, process_set=last, name="alone"))
            np.testing.assert_allclose(alone(jnp.full(2, 5.0)), [5, 5])
        everywhere = jax.jit(lambda x: job.allreduce(x, op=job.Sum, name="everywhere"))
        np.testing.assert_allclose(everywhere(jnp.ones(2)), [job.size()] * 2)
    finally:
        job.remove_process_set(last)


def test_errors(job, device, run):
    if job.size() > 1:
        r = job.rank()
        with pytest.raises(job.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes"), job.internal_errors():
            jax.block_until_ready(run(functools.partial(job.allreduce, name="shapes"))(jnp.ones(2 + r)))
        if run is jax.jit:
            with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="same number of rows, which gives"):
                jax.block_until_ready(run(functools.partial(job.allgather, name="uneven"))(jnp.ones((2 + r, 3))))
        mine = jax.device_put(jnp.ones(2), device if r % 2 else jax.devices("cpu")[0])
        with pytest.raises(job.HorovodInternalError, match="CPU/GPU device selection"), job.internal_errors():
            jax.block_until_ready(run(functools.partial(job.allreduce, name="mixed"))(mine))
    np.testing.assert_allclose(run(functools.partial(job.allreduce, name="after"))(jnp.ones(2)), [1, 1])


def test_training_takes_the_steps_that_it_takes_on_the_cpu(job, device):
    @jax.jit
    def step(layers, x, y):
        def loss(layers):
            hidden = jnp.tanh(jnp.matmul(x, layers["in"], precision="highest"))
            return ((jnp.matmul(hidden, layers["out"], precision="highest") - y) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(layers)
        gradients = job.allreduce(gradients, name="gradients")
        moved = jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, layers, gradients)
        return moved, job.allreduce(value, name="loss of all")

    random = np.random.default_rng(job.rank())
    batches = [(random.normal(size=(16, 8)).astype("f"), random.normal(size=(16, 2)).astype("f")) for _ in range(10)]
    first = {"in": random.normal(size=(8, 32)).astype("f"), "out": random.normal(size=(32, 2)).astype("f")}
    found = []
    for where in (device, jax.devices("cpu")[0]):
        with jax.default_device(where):
            layers = job.broadcast({k: jax.device_put(w, where) for k, w in first.items()}, root_rank=0)
            for x, y in batches:
                layers, value = step(layers, jax.device_put(x, where), jax.device_put(y, where))
            assert on(where, *layers.values())
            found.append([np.asarray(layers["in"]), np.asarray(layers["out"]), float(value)])
    for on_gpu, on_cpu in zip(*found):
        np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-3, atol=1e-4)


def test_arrays_travel_as_the_mode_says(job, device, tmp_path):
    """The timeline tells copies in host memory from calls of NCCL."""
    path = job.broadcast_object(str(tmp_path / "timeline.json"))
    job.shutdown()
    os.environ["HOROVOD_TIMELINE"] = path
    try:
        job.init()
        program = jax.jit(lambda x: job.allreduce({"a": x, "b": 2 * x}, op=job.Sum, name="way"))
        for _ in range(3):
            assert float(program(jnp.ones(1000))["b"][-1]) == 2 * job.size()
        assert float(job.allreduce(jnp.ones(1000), op=job.Sum, name="way at once")[-1]) == job.size()
        first = job.rank() == 0
    finally:
        job.shutdown()
        del os.environ["HOROVOD_TIMELINE"]
        job.init()
    if not first:
        return
    with open(path) as file:
        names = [event.get("name") for event in json.load(file)]
    by_nccl, by_host = names.count("NCCL_ALLREDUCE"), names.count(BY_HOST)
    assert "ALLREDUCE" in names
    if MODE == "nccl":
        assert by_nccl >= 4 and by_host == 0
    elif MODE == "staged":
        assert by_nccl == 0 and by_host > 0
    else:
        assert (by_nccl > 0) != (by_host > 0)


@pytest.mark.parametrize("size", [1 << 10, 64 << 20])
def test_cost(job, device, size, capsys):
    program = jax.jit(lambda x: job.allreduce(x, name="cost"))
    x = jnp.ones(size // 4)
    jax.block_until_ready([program(x) for _ in range(5)])
    rounds = 20
    start = time.perf_counter()
    for _ in range(rounds):
        x = program(x)
    jax.block_until_ready(x)
    each = (time.perf_counter() - start) / rounds
    if job.rank() == 0:
        with capsys.disabled():
            print(f"\nFIGURE: JAX: an allreduce of {size} bytes in a program, {job.size()} ranks: {1e6 * each:.0f} us")
