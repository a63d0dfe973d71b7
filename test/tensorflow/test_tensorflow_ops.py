"""Collectives on tensors, against their definition: eagerly, in functions, and in sessions."""

import os

import numpy as np
import pytest
import tensorflow as tf
from worlds import (
    ANY,
    FLOATS,
    MODES,
    NUMBERS,
    PARTS,
    SHAPES,
    check,
    eagerly,
    in_session,
    of_all,
    of_rank,
    parts,
    reduced,
    run,
)

import horovod.tensorflow as hvd
from horovod.tensorflow import mpi_ops

pytestmark = pytest.mark.usefixtures("job")

OPS = ["Average", "Sum", "Min", "Max", "Product"]
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda m: m.__name__)


def dtypes(some):
    return pytest.mark.parametrize("dtype", some, ids=lambda t: t.name)


# ---- allreduce


@every_mode
@dtypes(NUMBERS)
def test_allreduce(mode, dtype):
    for op in OPS:
        for i, shape in enumerate(SHAPES):
            inputs = of_all(shape, dtype, seed=i)
            mine = inputs[hvd.rank()]
            result = mode(lambda x, op=op: hvd.allreduce(x, op=getattr(hvd, op)), mine)
            check(result, reduced(inputs, op), exact=dtype not in FLOATS or op != "Average")


@every_mode
@dtypes(FLOATS)
def test_allreduce_scales(mode, dtype):
    inputs = of_all((5,), dtype)
    result = mode(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), inputs[hvd.rank()])
    check(result, (2 * reduced(inputs, "Sum").astype(np.float64)).astype(inputs[0].dtype), exact=False)


@pytest.mark.parametrize("dtype", [tf.uint16, tf.int16, tf.bool, tf.complex64, tf.string], ids=lambda t: t.name)
def test_allreduce_refuses_other_dtypes(dtype):
    value = tf.constant("x") if dtype == tf.string else tf.zeros([2], dtype)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in the list of allowed(?s:.*)HorovodAllreduce"):
        hvd.allreduce(value)


@pytest.mark.smoke
@every_mode
def test_grouped_allreduce(mode):
    shapes = [(2, 3), (), (0,), (5,)]
    inputs = [of_all(shape, tf.float32, seed=i) for i, shape in enumerate(shapes)]
    mine = [each[hvd.rank()] for each in inputs]
    results = mode(lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Sum), *mine)
    assert len(results) == len(shapes)
    for result, each in zip(results, inputs):
        check(result, reduced(each, "Sum"))


@every_mode
def test_grouped_allreduce_of_several_dtypes(mode):
    kinds = [tf.float32, tf.int32, tf.float32, tf.bfloat16]
    inputs = [of_all((3,), dtype, seed=i) for i, dtype in enumerate(kinds)]
    results = mode(
        lambda *xs: hvd.grouped_allreduce(list(xs), op=hvd.Max, name="several"), *[each[hvd.rank()] for each in inputs]
    )
    for result, each in zip(results, inputs):
        check(result, reduced(each, "Max"))


@every_mode
def test_average_argument_warns(mode):
    inputs = of_all((3,), tf.float64)
    with pytest.warns(DeprecationWarning):
        check(mode(lambda x: hvd.allreduce(x, average=False), inputs[hvd.rank()]), reduced(inputs, "Sum"))
    with pytest.raises(ValueError, match="supersedes"):
        hvd.allreduce(tf.ones(2), average=True, op=hvd.Sum)


@every_mode
@dtypes(FLOATS)
def test_fp16_compression(mode, dtype):
    inputs = of_all((4,), dtype)
    result = mode(lambda x: hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), inputs[hvd.rank()])
    check(result, reduced(inputs, "Sum"))


COMPRESSORS = [hvd.Compression.fp16, hvd.Compression.bf16]
FINE = 1 + 2.0**-12  # no 16-bit float


@every_mode
@pytest.mark.parametrize("compression", COMPRESSORS)
@dtypes([tf.float32, tf.float64])
def test_compression_rounds_between_hosts_only(mode, compression, dtype):
    one_host = os.environ.get("GOROVOD_TRANSPORT") != "tcp" and hvd.local_size() == hvd.size()
    expected = FINE if hvd.size() == 1 or one_host else 1.0

    def check_all(result, value):
        check(result, np.full(5, value, dtype.as_numpy_dtype), exact=False)

    def reduce(x, op):
        one = hvd.allreduce(x, op=op, compression=compression)
        return [one, *hvd.grouped_allreduce([x, tf.cast(x, tf.float64)], op=op, compression=compression)]

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(FINE * hvd.allreduce(x, op=hvd.Sum, compression=compression))
        return tape.gradient(total, x)

    mine = np.full(5, FINE, dtype.as_numpy_dtype)
    for op, factor in ((hvd.Sum, hvd.size()), (hvd.Average, 1)):
        one, of_group, wider = mode(lambda x, op=op: reduce(x, op), mine)
        check_all(one, factor * expected)
        check_all(of_group, factor * expected)
        np.testing.assert_allclose(wider, factor * expected, rtol=1e-6)
    if mode is not in_session:
        check_all(mode(gradient, mine), hvd.size() * expected)


def test_compression_by_the_front_end():
    fine = tf.fill([3], np.float32(FINE))
    for compression in COMPRESSORS:
        compressed, context = compression.compress(fine)
        assert compressed.dtype.size == 2
        check(compression.decompress(compressed, context), np.ones(3, np.float32))
        check(hvd.allreduce(fine, op=hvd.Max, compression=compression), np.ones(3, np.float32))
        check(hvd.reducescatter(tf.fill([hvd.size()], FINE), compression=compression), np.ones(1, np.float32))
    halves = tf.ones(3, tf.float16)
    assert hvd.Compression.bf16.compress(halves)[0] is halves


def test_sums_of_16_bits_are_made_in_32():
    """In 16 bits the ones would be lost one by one: float16 has no 2049, and bfloat16 no 257."""
    for dtype, most in ((tf.float16, 2048.0), (tf.bfloat16, 256.0)):
        mine = tf.constant([most if hvd.rank() == 0 else 1.0], dtype)
        total = tf.cast(tf.constant([most + hvd.size() - 1]), dtype)
        check(hvd.allreduce(mine, op=hvd.Sum), total.numpy())


def test_adasum_of_equal_and_of_orthogonal_tensors():
    check(hvd.allreduce(tf.constant([1.0, 2.0]), op=hvd.Adasum), np.array([1, 2], np.float32), exact=False)
    mine = tf.one_hot(hvd.rank(), hvd.size(), dtype=tf.float64)
    check(hvd.allreduce(mine, op=hvd.Adasum), np.ones(hvd.size()), exact=False)


# ---- sparse tensors


@every_mode
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_slices(mode, op):
    """Ranks have different numbers of rows; the last one has none."""
    n = hvd.size()
    counts = [n - 1 - rank for rank in range(n)]
    values = [np.full((count, 2), rank + 1, np.float32) for rank, count in enumerate(counts)]
    indices = [np.arange(count, dtype=np.int64) for count in counts]

    def reduce(v, i):
        sparse = hvd.allreduce(tf.IndexedSlices(v, i, tf.constant([n, 2], tf.int64)), op=getattr(hvd, op))
        return sparse.values, sparse.indices, tf.convert_to_tensor(sparse)

    got_values, got_indices, dense = mode(reduce, values[hvd.rank()], indices[hvd.rank()])
    check(got_indices, np.concatenate(indices))
    scale = np.float32(n if op == "Average" else 1)
    check(got_values, np.concatenate(values) / scale, exact=False)
    expected = np.zeros((n, 2), np.float32)
    np.add.at(expected, np.concatenate(indices), np.concatenate(values) / scale)
    check(dense, expected, exact=False)


def test_slices_refuse_what_they_cannot():
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
    for op in (hvd.Adasum, hvd.Min):
        with pytest.raises(NotImplementedError, match="sparse_as_dense"):
            hvd.allreduce(slices, op=op)
    with pytest.raises(NotImplementedError, match="prescale"):
        hvd.allreduce(slices, prescale_factor=2.0)


@every_mode
def test_group_with_slices_keeps_the_order(mode):
    rank, n = hvd.rank(), hvd.size()

    def reduce(x, v, y):
        i = tf.constant([rank])
        results = hvd.grouped_allreduce([x, tf.IndexedSlices(v, i, tf.constant([n, 2])), y], op=hvd.Sum)
        return results[0], tf.convert_to_tensor(results[1]), results[2]

    x, sparse, y = mode(
        reduce, np.ones(2, np.float32), np.full((1, 2), rank + 1, np.float32), np.full(3, 2, np.float32)
    )
    check(x, np.full(2, n, np.float32))
    check(sparse, np.repeat(np.arange(1, n + 1, dtype=np.float32)[:, None], 2, 1))
    check(y, np.full(3, 2 * n, np.float32))


# ---- allgather


@every_mode
@dtypes(ANY)
def test_allgather(mode, dtype):
    for rest in [(), (3,), (2, 2)]:
        inputs = [of_rank(rank, (rank + 1, *rest), dtype) for rank in range(hvd.size())]
        check(mode(hvd.allgather, inputs[hvd.rank()]), np.concatenate(inputs))


@every_mode
def test_allgather_where_some_have_nothing(mode):
    inputs = [of_rank(rank, (rank % 2, 3), tf.float32) for rank in range(hvd.size())]
    check(mode(hvd.allgather, inputs[hvd.rank()]), np.concatenate(inputs))


@every_mode
def test_grouped_allgather(mode):
    inputs = [[of_rank(r, (r + i, 2), tf.int32, seed=i) for r in range(hvd.size())] for i in range(3)]
    results = mode(lambda *xs: hvd.grouped_allgather(list(xs)), *[each[hvd.rank()] for each in inputs])
    for result, each in zip(results, inputs):
        check(result, np.concatenate(each))


# ---- broadcast


@every_mode
@dtypes(ANY)
def test_broadcast(mode, dtype):
    for root in {0, hvd.size() - 1}:
        for shape in SHAPES:
            inputs = of_all(shape, dtype)
            mine = inputs[hvd.rank()].copy()
            check(mode(lambda x, root=root: hvd.broadcast(x, root), mine), inputs[root])
            check(mine, inputs[hvd.rank()])


# ---- alltoall


@every_mode
@dtypes(ANY)
def test_alltoall(mode, dtype):
    """Rank r sends r + i + 1 rows to rank i."""
    n, me = hvd.size(), hvd.rank()
    splits = [[r + i + 1 for i in range(n)] for r in range(n)]
    inputs = [of_rank(r, (sum(splits[r]), 2), dtype) for r in range(n)]
    expected = np.concatenate([np.split(inputs[r], np.cumsum(splits[r])[:-1])[me] for r in range(n)])
    output, received = mode(lambda x, s: hvd.alltoall(x, splits=s), inputs[me], np.array(splits[me], np.int32))
    check(output, expected)
    check(received, np.array([splits[r][me] for r in range(n)], np.int32))


@every_mode
def test_alltoall_without_splits(mode):
    n, me = hvd.size(), hvd.rank()
    inputs = of_all((2 * n, 3), tf.float32)
    expected = np.concatenate([x[2 * me : 2 * me + 2] for x in inputs])
    check(mode(hvd.alltoall, inputs[me]), expected)


# ---- reducescatter


@every_mode
@dtypes(PARTS)
def test_reducescatter(mode, dtype):
    n, me = hvd.size(), hvd.rank()
    for op in ("Average", "Sum"):
        for rows in (n, 2 * n + 1):
            inputs = of_all((rows, 2), dtype)
            result = mode(lambda x, op=op: hvd.reducescatter(x, op=getattr(hvd, op)), inputs[me])
            check(result, parts(reduced(inputs, op), n)[me], exact=dtype not in FLOATS or op == "Sum")


@every_mode
def test_grouped_reducescatter(mode):
    n, me = hvd.size(), hvd.rank()
    inputs = [of_all((n + i, 2), tf.float64, seed=i) for i in range(3)]
    results = mode(
        lambda *xs: hvd.grouped_reducescatter(list(xs), op=hvd.Sum, prescale_factor=0.5), *[x[me] for x in inputs]
    )
    for result, each in zip(results, inputs):
        check(result, parts(0.5 * reduced(each, "Sum"), n)[me])


def test_reducescatter_refuses_scalars_and_adasum():
    with pytest.raises(tf.errors.InvalidArgumentError, match="scalar"):
        hvd.reducescatter(tf.constant(1.0))
    with pytest.raises(NotImplementedError):
        hvd.reducescatter(tf.ones(4), op=hvd.Adasum)
    with pytest.raises(NotImplementedError):
        hvd.grouped_reducescatter([tf.ones(4)], op=hvd.Adasum)


# ---- join, facts


@every_mode
def test_join(mode):
    """Rank 0 has one tensor more than the others, who take part with zeros."""
    if hvd.rank() == 0:
        check(hvd.allreduce(tf.ones(3), op=hvd.Sum, name="only_0"), np.ones(3, np.float32))
    last = mode(hvd.join)
    assert last.dtype == np.int32 and 0 <= last < hvd.size()


@every_mode
def test_facts(mode):
    values = mode(
        lambda: (
            hvd.rank_op(),
            hvd.size_op(),
            hvd.local_rank_op(),
            hvd.local_size_op(),
            hvd.process_set_included_op(0),
        )
    )
    expected = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), 1)
    assert tuple(int(v) for v in values) == expected
    assert all(v.dtype == np.int32 for v in values)


def test_facts_are_those_of_the_run():
    """A graph outlives the world that it was built in."""
    function = tf.function(lambda: hvd.size_op())
    assert int(function()) == hvd.size()
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match="hvd.init"):
        function()
    hvd.init()
    assert int(function()) == hvd.size()


# ---- process sets


@every_mode
def test_process_set(mode, evens):
    included = hvd.rank() % 2 == 0
    assert int(hvd.size_op(evens.process_set_id)) == len(evens.ranks)
    assert int(hvd.process_set_included_op(evens.process_set_id)) == included
    if not included:
        return
    inputs = of_all((2 * len(evens.ranks), 2), tf.float32, ranks=evens.ranks)
    mine, place = inputs[evens.rank()], evens.rank()
    check(mode(lambda x: hvd.allreduce(x, process_set=evens), mine), reduced(inputs, "Average"), exact=False)
    check(mode(lambda x: hvd.allgather(x, process_set=evens), mine), np.concatenate(inputs))
    root = evens.ranks[-1]
    check(mode(lambda x: hvd.broadcast(x, root, process_set=evens), mine), inputs[-1])
    check(
        mode(lambda x: hvd.alltoall(x, process_set=evens), mine), np.concatenate([x[2 * place :][:2] for x in inputs])
    )
    check(
        mode(lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=evens), mine),
        parts(reduced(inputs, "Sum"), len(inputs))[place],
    )
    check(mode(lambda x: hvd.grouped_allreduce([x], op=hvd.Sum, process_set=evens), mine)[0], reduced(inputs, "Sum"))
    slices = eagerly(
        lambda x: tf.convert_to_tensor(
            hvd.allreduce(tf.IndexedSlices(x, tf.range(len(x)), tf.shape(x)), process_set=evens)
        ),
        mine,
    )
    check(slices, reduced(inputs, "Average"), exact=False)


def test_process_set_that_is_gone():
    gone = hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="not initialized"):
        hvd.allreduce(tf.ones(1), process_set=gone)
    gone.process_set_id = 77  # as a copy of one that was removed has it
    rows, root = tf.ones([hvd.size()]), 0
    for operation in (
        lambda: hvd.allreduce(rows, process_set=gone),
        lambda: hvd.grouped_allreduce([rows], process_set=gone),
        lambda: hvd.allgather(rows, process_set=gone),
        lambda: hvd.broadcast(rows, root, process_set=gone),
        lambda: hvd.alltoall(rows, process_set=gone),
        lambda: hvd.reducescatter(rows, process_set=gone),
    ):
        for call in (operation, tf.function(operation, autograph=False)):
            with pytest.raises(ValueError, match="Unknown process set id 77"):
                call()
    for function in (
        lambda: hvd.broadcast_object(1, process_set=gone),
        lambda: hvd.broadcast_variables([tf.Variable(1.0)], root, process_set=gone),
    ):
        with pytest.raises(ValueError, match="Unknown process set id 77"):
            function()
    with pytest.raises(tf.errors.OpError, match="(?i)process set"):
        mpi_ops._native.horovod_allreduce(tf.ones(1), process_set_id=77)
    with pytest.raises(tf.errors.FailedPreconditionError, match="no process set with the id 77"):
        hvd.size_op(77)


# ---- names, statefulness, graphs


def nodes(graph):
    return [n.name for n in graph.as_graph_def().node if n.op.startswith("Horovod")]


def test_names_of_nodes():
    with tf.Graph().as_default() as graph:
        with tf.name_scope("layer"):
            x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
            hvd.allreduce(x)
            hvd.allgather(x)
            hvd.broadcast(x, 0)
            hvd.alltoall(x)
            hvd.reducescatter(x)
            hvd.grouped_allreduce([x, tf.identity(x, "y")])
            hvd.allreduce(x, name="mine")
            hvd.allreduce(x, name="mine")
    assert nodes(graph) == [
        "layer/HorovodAllreduce_layer_x_0",
        "layer/HorovodAllgather_layer_x_0",
        "layer/HorovodBroadcast_layer_x_0",
        "layer/HorovodAlltoall_layer_x_0",
        "layer/HorovodReducescatter_layer_x_0",
        "layer/HorovodGroupedAllreduce_layer_x_0_layer_y_0",
        "layer/mine",
        "layer/mine_1",
    ]


def test_ignore_name_scope():
    """Operations that are in a different scope on each rank match if scopes are ignored."""
    with tf.Graph().as_default() as graph:
        with tf.name_scope(f"scope_of_{hvd.rank()}"):
            x = tf.constant([1.0 + hvd.rank()])
            outputs = [
                hvd.allreduce(x, name="mine", op=hvd.Sum, ignore_name_scope=True),
                hvd.grouped_allreduce([x, 2 * x], name="ours", op=hvd.Sum, ignore_name_scope=True)[1],
            ]
    total = sum(range(1, hvd.size() + 1))
    one, two = run(graph, outputs)
    assert (one, two) == (total, 2 * total)


def test_eager_names_and_those_of_groups_meet():
    """A group's members are NAME_iofn: single operations with these names are their partners."""
    if hvd.size() < 2:
        pytest.skip("needs a partner")
    names = ["pair_1of2", "pair_2of2"]
    message = None
    try:
        if hvd.rank() == 0:
            hvd.grouped_allreduce([tf.ones(1), tf.ones(1)], name="pair")
        else:
            tf.function(lambda: [hvd.allreduce(tf.ones([2]), name=name) for name in names])()
    except tf.errors.OpError as e:
        message = str(e)
    assert message is not None and ("pair_1of2" in message or "pair_2of2" in message)


def test_nothing_is_merged_or_pruned():
    from horovod.common import _lib

    def executed():
        import ctypes

        values = (ctypes.c_int64 * 8)()
        _lib.load().gorovod_counters(values, 8)
        return values[1]

    @tf.function
    def function(x):
        hvd.allreduce(x, name="unused", op=hvd.Sum)
        return hvd.allreduce(x, name="same", op=hvd.Sum) - hvd.allreduce(x, name="same", op=hvd.Sum)

    function(tf.ones(2))
    before = executed()
    check(function(tf.ones(2)), np.zeros(2, np.float32))
    assert executed() == before + 3


def test_shapes_are_known_when_the_graph_is_built():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [4, 3])
        unknown = tf.compat.v1.placeholder(tf.float32)
        assert hvd.allreduce(x).shape.as_list() == [4, 3]
        assert hvd.broadcast(x, 0).shape.as_list() == [4, 3]
        assert hvd.allgather(x).shape.as_list() == [None, 3]
        assert hvd.reducescatter(x).shape.as_list() == [None, 3]
        output, received = hvd.alltoall(x, splits=[4])
        assert output.shape.as_list() == [None, 3] and received.shape.as_list() == [None]
        assert [t.shape.as_list() for t in hvd.grouped_allgather([x, x])] == [[None, 3]] * 2
        assert hvd.allreduce(unknown).shape.rank is None and hvd.allgather(unknown).shape.rank is None
        assert hvd.rank_op().shape.as_list() == []


def test_in_a_loop():
    @tf.function
    def function(x):
        return tf.while_loop(lambda i, _: i < 5, lambda i, y: (i + 1, hvd.allreduce(y, op=hvd.Sum)), (0, x))[1]

    check(function(tf.ones(2)), np.full(2, float(hvd.size()) ** 5, np.float32))


def test_input_is_kept_where_it_is_used_again():
    """The kernel may take its input's memory over only if nobody else reads it."""

    @tf.function
    def function(x):
        y = x + 1
        z = hvd.allreduce(y, op=hvd.Sum)
        v = hvd.broadcast(y * 1, hvd.size() - 1)
        return y, z, v

    y, z, v = function(tf.fill([1000], float(hvd.rank())))
    check(y, np.full(1000, hvd.rank() + 1, np.float32))
    check(z, np.full(1000, hvd.size() * (hvd.size() + 1) / 2, np.float32))
    check(v, np.full(1000, hvd.size(), np.float32))


def test_saved_model(tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def total(self, x):
            return hvd.allreduce(x, op=hvd.Sum, name="saved"), hvd.size_op()

    tf.saved_model.save(Module(), str(tmp_path))
    total, size = tf.saved_model.load(str(tmp_path)).total(tf.ones(3))
    check(total, np.full(3, hvd.size(), np.float32))
    assert int(size) == hvd.size()


def test_many_in_one_function():
    """All are in progress at the same time, with one thread for operations."""
    function = tf.function(lambda xs: [hvd.allreduce(x, op=hvd.Sum, name=f"many_{i}") for i, x in enumerate(xs)])
    for _ in range(3):
        for i, y in enumerate(function([tf.fill([i + 1], float(i)) for i in range(100)])):
            check(y, np.full(i + 1, i * hvd.size(), np.float32))


# ---- ranks that disagree


def test_mismatched_shapes_in_a_function():
    if hvd.size() < 2:
        pytest.skip("one rank agrees with itself")
    function = tf.function(lambda x: hvd.allreduce(x, name="mismatched"))
    with pytest.raises(tf.errors.FailedPreconditionError, match="(?s)mismatched.*shape"):
        function(tf.ones([hvd.rank() + 1]))
    check(function(tf.ones([2])), np.ones(2, np.float32))  # and goes on


def test_mismatched_dtypes_ops_and_roots():
    if hvd.size() < 2:
        pytest.skip("one rank agrees with itself")
    odd = hvd.rank() % 2 == 1
    with pytest.raises(tf.errors.FailedPreconditionError, match="data type"):
        hvd.allreduce(tf.zeros(2, tf.float64 if odd else tf.float32), name="dtypes")
    with pytest.raises(tf.errors.FailedPreconditionError, match="(?i)operation"):
        (hvd.allgather if odd else hvd.allreduce)(tf.zeros(2), name="kinds")
    with pytest.raises(tf.errors.FailedPreconditionError, match="(?i)root"):
        hvd.broadcast(tf.zeros(2), int(odd), name="roots")


def test_bad_splits():
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)split"):
        hvd.alltoall(tf.ones([3]), splits=[1] * (hvd.size() + 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="vector"):
        hvd.alltoall(tf.ones([3]), splits=[[3]])


WRONG = [
    (TypeError, "compression must be one of", lambda x: hvd.allreduce(x, compression=3)),
    (TypeError, "compression must be one of", lambda x: hvd.grouped_allreduce([x], compression=hvd.Compression)),
    (TypeError, "compression must be one of", lambda x: hvd.reducescatter(x, compression=None)),
    (ValueError, "unknown reduce operation 77", lambda x: hvd.allreduce(x, op=77)),
    (ValueError, "unknown reduce operation 1.5", lambda x: hvd.grouped_allreduce([x], op=1.5)),
    (ValueError, "unknown reduce operation 'sum'", lambda x: hvd.allreduce(x, op="sum")),
    (ValueError, "operation Min is not possible here; use Average", lambda x: hvd.reducescatter(x, op=hvd.Min)),
    (ValueError, "Max is not possible here; use Average", lambda x: hvd.grouped_reducescatter([x], op=hvd.Max)),
    (TypeError, "name must be a str, not 3", lambda x: hvd.allgather(x, name=3)),
    (ValueError, "contains a NUL", lambda x: hvd.alltoall(x, name="a\0b")),
    (TypeError, "prescale_factor must be a number, not '2'", lambda x: hvd.allreduce(x, prescale_factor="2")),
    (TypeError, "postscale_factor must be a number, not None", lambda x: hvd.reducescatter(x, postscale_factor=None)),
    (TypeError, "process_set must be a ProcessSet, not 0", lambda x: hvd.allgather(x, process_set=0)),
    (TypeError, "process_set must be a ProcessSet, not None", lambda x: hvd.broadcast(x, 0, process_set=None)),
    (TypeError, "root_rank must be an integer, not 1.5", lambda x: hvd.broadcast(x, 1.5)),
    (TypeError, "root_rank must be an integer, not None", lambda x: hvd.broadcast_([tf.Variable(1.0)], None)),
    (ValueError, "out of range", lambda x: hvd.broadcast(x, 1 << 40)),
    (TypeError, "process_set_id must be an integer, not 1.5", lambda x: hvd.size_op(1.5)),
    (ValueError, "None", lambda x: hvd.allreduce(None)),
    (ValueError, "tensor 1 of a group of 2 is None", lambda x: hvd.grouped_allreduce([x, None])),
    (TypeError, "must be a list of tensors", lambda x: hvd.grouped_allgather(x)),
    (TypeError, "must be a list of tensors", lambda x: hvd.grouped_reducescatter(None)),
    (TypeError, "is not a tf.Variable", lambda x: hvd.broadcast_([tf.Variable(1.0), x], 0)),
    ((TypeError, ValueError), "int32", lambda x: hvd.alltoall(x, splits=[1.5])),
]


@pytest.mark.parametrize("function", [False, True])
def test_wrong_arguments_are_told_by_the_call_itself(function):
    """A function fails when it is traced: a graph that nobody runs would hide the mistake."""
    for error, text, call in WRONG:
        with pytest.raises(error, match=text):
            if function:
                tf.function(call, autograph=False).get_concrete_function(tf.TensorSpec([3]))
            else:
                call(tf.ones(3))


def test_groups_of_nothing_and_of_an_iterator():
    assert hvd.grouped_allreduce([]) == hvd.grouped_allgather(()) == hvd.grouped_reducescatter([]) == []
    for result in hvd.grouped_allreduce((tf.ones(2) for _ in range(3)), op=hvd.Sum):
        check(result, np.full(2, hvd.size(), np.float32))


def test_compiled_function_is_refused():
    """XLA knows no collective of Horovod, and its error names the collective."""

    @tf.function(jit_compile=True)
    def function(x):
        return hvd.allreduce(2 * x, name="compiled")

    with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.UnimplementedError), match="HorovodAllreduce"):
        function(tf.ones(2))
