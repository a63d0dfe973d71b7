"""Optimizers, tapes, and making ranks equal: training on all ranks is training on the whole batch."""

import numpy as np
import pytest
import tensorflow as tf
from worlds import check, run

import horovod.tensorflow as hvd
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._reduction import Reducer
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

pytestmark = pytest.mark.usefixtures("job")

v1 = tf.compat.v1
STEPS = 4
RATE = 0.125  # the same number in float32 and float64


def batch(step, rank):
    random = np.random.RandomState(100 * step + rank)
    return random.rand(3, 2), random.rand(3, 1)


def whole(step):
    """The batches of all ranks at a step, together."""
    xs, ys = zip(*[batch(step, rank) for rank in range(hvd.size())])
    return np.concatenate(xs), np.concatenate(ys)


def error_gradient(w, x, y):
    """The gradient of the mean of (xw - y)²."""
    return 2 * x.T @ (x @ w - y) / len(x)


def alone(rate=RATE, steps=STEPS):
    """The weights after training on the whole batch."""
    w = np.ones((2, 1))
    for step in range(steps):
        w -= rate * error_gradient(w, *whole(step))
    return w


# ---- tapes


def step_of(w, x, y, **options):
    with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
        loss = tf.reduce_mean((tf.matmul(x, w) - y) ** 2)
    w.assign_sub(RATE * tape.gradient(loss, w))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_predivide_factor": 4.0}, {"num_groups": 1}, {"groups": 3}, {"compression": hvd.Compression.none}],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tape(compiled, options):
    w = tf.Variable(np.ones((2, 1)))

    def step(x, y):
        step_of(w, x, y, **options)

    step = tf.function(step) if compiled else step
    for i in range(STEPS):
        step(*[tf.constant(a) for a in batch(i, hvd.rank())])
    check(w, alone(), exact=False)


@pytest.fixture
def traces(monkeypatch):
    """A list that grows with each tracing of a function that reduces gradients eagerly."""
    made = []
    reduce = Reducer._reduce

    def counted(self, *args):
        made.append(args)
        return reduce(self, *args)

    monkeypatch.setattr(Reducer, "_reduce", counted)
    return made


@pytest.mark.parametrize("grouped", [False, True])
def test_a_new_tape_for_each_eager_step_traces_nothing_anew(traces, grouped):
    w = tf.Variable(np.ones((2, 1)))
    b = tf.Variable(np.ones(1))
    for step in range(100):
        x, y = (tf.constant(a) for a in batch(step % STEPS, hvd.rank()))
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean((tf.matmul(x, w) + b - y) ** 2)
        tape = hvd.DistributedGradientTape(tape, groups=[[w, b]] if grouped else None)
        # Without groups also the gradient of a tensor, which is another one at each step.
        gradients = tape.gradient(loss, [w, b] if grouped else [w, b, x])
        w.assign_sub(0.01 * gradients[0])
        b.assign_sub(0.01 * gradients[1])
    assert len(traces) == 1


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_tape_keeps_the_structure_and_none(compiled):
    v, unused, table = tf.Variable(2.0), tf.Variable(3.0), tf.Variable(tf.ones([4, 2]))
    rank, n = hvd.rank(), hvd.size()

    def gradients():
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True), op=hvd.Sum) as tape:
            loss = (rank + 1) * v + tf.reduce_sum(tf.gather(table, [rank % 4, 0]))
        single = tape.gradient(loss, v)
        return single, tape.gradient(loss, {"a": v, "b": [unused, table]})

    single, result = (tf.function(gradients) if compiled else gradients)()
    total = n * (n + 1) / 2
    check(single, np.float32(total))
    assert set(result) == {"a", "b"} and result["b"][0] is None
    check(result["a"], np.float32(total))
    assert isinstance(result["b"][1], tf.IndexedSlices)
    expected = np.zeros((4, 2), np.float32)
    for r in range(n):
        expected[r % 4] += 1
        expected[0] += 1
    check(tf.convert_to_tensor(result["b"][1]), expected)


def test_tape_makes_sparse_dense():
    table = tf.Variable(tf.ones([4, 2]))
    with hvd.DistributedGradientTape(tf.GradientTape(), sparse_as_dense=True) as tape:
        loss = tf.reduce_sum(tf.gather(table, [1]))
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.Tensor)
    check(gradient, np.array([[0, 0], [1, 1], [0, 0], [0, 0]], np.float32))


@pytest.mark.parametrize("scale", [True, False])
def test_local_sources(scale):
    mine, ours = tf.Variable(1.0), tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True), scale_local_gradients=scale) as tape:
        loss = (hvd.rank() + 1.0) * (mine + ours)
    tape.register_local_source(mine)
    local, reduced = tape.gradient(loss, [mine, ours])
    check(local, np.float32((hvd.rank() + 1) / (hvd.size() if scale else 1)), exact=False)
    check(reduced, np.float32((hvd.size() + 1) / 2), exact=False)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_local_and_global_gradients(compiled, scale):
    """Pairs of a source and its gradient: the local sources in the first list, all others in the second."""
    first, mine, last, unused = (tf.Variable(1.0) for _ in range(4))

    def step():
        tape = hvd.DistributedGradientTape(tf.GradientTape(), scale_local_gradients=scale)
        tape.register_local_source(mine)
        with tape:
            loss = (hvd.rank() + 1.0) * (first + 2 * mine + 3 * last)
        sources = {"a": first, "b": [mine, last], "c": unused}
        local, others = tape.get_local_and_global_gradients(loss, sources)
        assert [v is w for (v, _), w in zip(local, [mine])] == [True]
        assert [v is w for (v, _), w in zip(others, [first, last, unused])] == [True] * 3
        assert others[2][1] is None
        return [g for _, g in local], [g for _, g in others[:2]]

    (local,), reduced = (tf.function(step, autograph=False) if compiled else step)()
    check(local, np.float32(2 * (hvd.rank() + 1) / (hvd.size() if scale else 1)), exact=False)
    for gradient, factor in zip(reduced, (1, 3)):
        check(gradient, np.float32(factor * (hvd.size() + 1) / 2), exact=False)


def test_partial_tape():
    layers = [tf.keras.layers.Dense(1, use_bias=False) for _ in range(2)]
    x = tf.fill([1, 1], hvd.rank() + 1.0)
    for layer in layers:
        layer.build((None, 1))
    tape = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=layers[0], scale_local_gradients=False)
    with tape:
        loss = tf.reduce_sum(layers[0](x) + layers[1](x))
    local, reduced = tape.gradient(loss, [layer.trainable_weights[0] for layer in layers])
    check(tf.reshape(local, []), np.float32(hvd.rank() + 1))
    check(tf.reshape(reduced, []), np.float32((hvd.size() + 1) / 2), exact=False)
    with pytest.raises(ValueError, match="Layer"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])


def test_tape_on_a_process_set(evens):
    """A rank that is not in the set keeps its own gradients."""
    v = tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(), process_set=evens) as tape:
        loss = (hvd.rank() + 1.0) * v
    mean = np.mean([r + 1 for r in evens.ranks])
    check(tape.gradient(loss, v), np.float32(mean if hvd.rank() % 2 == 0 else hvd.rank() + 1), exact=False)


def test_wrong_arguments():
    tape = tf.GradientTape()
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedGradientTape(tape, op=hvd.Sum, gradient_predivide_factor=2.0)
    for groups in (0, -1, "two", [tf.Variable(1.0)]):
        with pytest.raises(ValueError, match="groups"):
            hvd.DistributedGradientTape(tape, groups=groups)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedGradientTape(tape, num_groups=2)
    optimizer = v1.train.GradientDescentOptimizer(RATE)
    with pytest.raises(ValueError, match="average_aggregated"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, average_aggregated_gradients=True)
    with pytest.raises(NotImplementedError, match="process sets"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, process_set=hvd.ProcessSet([0]))
    for passes in (0, -3, "2", 2.5):
        error = ValueError if isinstance(passes, int) else TypeError
        with pytest.raises(error, match="backward_passes_per_step must be"):
            hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1), backward_passes_per_step=passes)
    with pytest.raises(ValueError, match="eager"):
        hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
    with pytest.raises(ValueError, match="predivide"):
        hvd.DistributedOptimizer(optimizer, op=hvd.Sum, gradient_predivide_factor=2.0)


# What each front end says of options that are wrong by themselves.
WRONG = [
    (TypeError, "compression must be one of", {"compression": 3}),
    (ValueError, "unknown reduce operation 77", {"op": 77}),
    (TypeError, "gradient_predivide_factor must be a number", {"gradient_predivide_factor": "2"}),
    (ValueError, "gradient_predivide_factor must be finite", {"gradient_predivide_factor": 0}),
    (TypeError, "process_set must be a ProcessSet", {"process_set": 0}),
    (ValueError, "lists of variables", {"groups": [1, 2]}),
]


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: hvd.DistributedGradientTape(tf.GradientTape(), **options),
        lambda **options: hvd.PartialDistributedGradientTape(tf.GradientTape(), **options),
        lambda **options: hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE), **options),
        lambda **options: hvd.DistributedOptimizer(tf.keras.optimizers.SGD(RATE), **options),
    ],
    ids=["tape", "partial tape", "optimizer of TensorFlow 1", "optimizer of Keras"],
)
def test_wrong_options(make):
    for error, text, options in WRONG:
        with pytest.raises(error, match=text):
            make(**options)


def test_wrong_tapes_and_sets():
    with pytest.raises(TypeError, match="gradtape must be"):
        hvd.DistributedGradientTape(None)
    with pytest.raises(TypeError, match="name must be a str"):
        hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE), name=3)
    with pytest.raises(TypeError, match="root_rank must be an integer"):
        hvd.BroadcastGlobalVariablesHook(1.5)
    with pytest.raises(TypeError, match="number 0 of the variables .from 0. is not a tf.Variable"):
        hvd.broadcast_variables([tf.ones(2)], 0)
    # Otherwise a set that does not exist would leave gradients unreduced.
    v = tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(), process_set=hvd.ProcessSet(range(hvd.size()))) as tape:
        loss = 2 * v
    with pytest.raises(ValueError, match="not initialized"):
        tape.gradient(loss, v)


# ---- optimizers of TensorFlow 1


class Graph1:
    """Linear regression in a graph of TensorFlow 1, on this rank's batches, with ref or resource variables."""

    def __init__(self, use_resource, wrap, **minimize):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float64, [None, 2])
            self.y = v1.placeholder(tf.float64, [None, 1])
            self.w = v1.get_variable("w", initializer=np.ones((2, 1)), use_resource=use_resource)
            self.steps = v1.train.get_or_create_global_step()
            loss = tf.reduce_mean((tf.matmul(self.x, self.w) - self.y) ** 2)
            optimizer = wrap(v1.train.GradientDescentOptimizer(RATE))
            self.train = optimizer.minimize(loss, global_step=self.steps, **minimize)
            self.init = [v1.global_variables_initializer(), v1.local_variables_initializer()]

    def weights(self, steps):
        """The weights after each step."""
        config = v1.ConfigProto(inter_op_parallelism_threads=1)
        with v1.Session(graph=self.graph, config=config) as session:
            session.run(self.init)
            result = []
            for step in range(steps):
                x, y = batch(step, hvd.rank())
                session.run(self.train, {self.x: x, self.y: y})
                result.append(session.run(self.w))
            assert session.run(self.steps) == steps
        return result


@pytest.fixture(params=[False, True], ids=["ref", "resource"])
def use_resource(request):
    """The kind of variables, with the control flow of their time, as tf.disable_v2_behavior() chooses them."""
    if not request.param:
        v1.disable_control_flow_v2()
    yield request.param
    v1.enable_control_flow_v2()


@pytest.mark.parametrize("options", [{}, {"gradient_predivide_factor": 2.0}, {"groups": 1}], ids=str)
def test_optimizer(use_resource, options):
    graph = Graph1(use_resource, lambda o: hvd.DistributedOptimizer(o, **options))
    check(graph.weights(STEPS)[-1], alone(), exact=False)


@pytest.mark.parametrize("average", [False, True])
def test_optimizer_with_several_passes(use_resource, average):
    """Two passes add up: the weights change at every other one, as with the sum of both gradients."""
    graph = Graph1(
        use_resource,
        lambda o: hvd.DistributedOptimizer(o, backward_passes_per_step=2, average_aggregated_gradients=average),
    )
    weights = graph.weights(4)
    w = np.ones((2, 1))
    check(weights[0], w)
    for first in (0, 2):
        w = w - RATE / (2 if average else 1) * sum(error_gradient(w, *whole(first + i)) for i in range(2))
        check(weights[first + 1], w, exact=False)
    check(weights[2], weights[1])


@pytest.mark.parametrize("passes", [1, 2])
def test_adasum_optimizer(use_resource, passes):
    """Equal changes combine to the same change: with one batch for all, training is as if alone."""
    if hvd.size() & (hvd.size() - 1):
        pytest.skip("Adasum needs a power of two")
    graph = Graph1(use_resource, lambda o: hvd.DistributedOptimizer(o, op=hvd.Adasum, backward_passes_per_step=passes))
    with v1.Session(graph=graph.graph) as session:
        session.run(graph.init)
        w = np.ones((2, 1))
        for step in range(4):
            x, y = batch(step, 0)
            session.run(graph.train, {graph.x: x, graph.y: y})
            w = w - RATE * error_gradient(w, x, y)
            check(session.run(graph.w), w, exact=False)


def test_optimizer_in_eager_mode():
    w = tf.Variable(np.ones((2, 1)))
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE))
    for step in range(STEPS):
        x, y = batch(step, hvd.rank())
        optimizer.minimize(lambda x=x, y=y: tf.reduce_mean((tf.matmul(x, w) - y) ** 2), var_list=[w])
    check(w, alone(), exact=False)


def test_optimizer_delegates():
    with tf.Graph().as_default() as graph:
        w, mine = v1.get_variable("w", initializer=1.0), v1.get_variable("mine", initializer=1.0)
        inner = v1.train.MomentumOptimizer(0.1, 0.9)
        optimizer = hvd.DistributedOptimizer(inner)
        optimizer.register_local_var(mine)
        pairs = optimizer.compute_gradients((hvd.rank() + 1.0) * (w + mine))
        optimizer.apply_gradients((pair for pair in pairs), name="apply")
        assert optimizer.get_slot_names() == inner.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(w, "momentum") is inner.get_slot(w, "momentum")
        assert optimizer.variables() == inner.variables()
        assert optimizer.get_name() == "DistributedMomentumOptimizer"
        reduced, local = run(graph, [g for g, _ in pairs])
    assert reduced == np.float32((hvd.size() + 1) / 2)
    assert local == np.float32((hvd.rank() + 1) / hvd.size())


def test_other_variables_than_at_the_first_step():
    """A variable that is made after the first step takes part."""
    v = tf.Variable(1.0)
    variables = [v]
    for _ in range(2):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = (hvd.rank() + 1.0) * tf.add_n([x * x for x in variables])
        for gradient, x in zip(tape.gradient(loss, variables), variables):
            check(gradient, np.float32((hvd.size() + 1) * x.numpy()), exact=False)
        variables.append(tf.Variable(3.0))


# ---- helpers that add gradients up


@pytest.mark.parametrize("average", [False, True])
def test_eager_aggregation(average):
    def reduce(gradients, variables):
        assert [v.name for v in variables] == ["a:0"]
        return [None if g is None else hvd.allreduce(g, op=hvd.Average) for g in gradients]

    helper = LocalGradientAggregationHelperEager(3, reduce, False, average)
    a, b = tf.Variable(0.0, name="a"), tf.Variable(0.0, name="b")
    helper.register_local_var(b)

    class Optimizer:
        iterations = tf.Variable(0, dtype=tf.int64)

    applied = []
    rank = hvd.rank()
    for i in range(6):
        gradients = helper.compute_gradients([tf.constant(1.0 + rank + i % 3), tf.constant(2.0 * rank)], [a, b])
        helper.apply_gradients(lambda i=i: applied.append(i) or Optimizer.iterations.assign_add(1), Optimizer)
        if i % 3 == 2:
            n = 3 if average else 1
            check(gradients[0], np.float32((6 + 3 * (hvd.size() - 1) / 2) / n), exact=False)
            check(gradients[1], np.float32(6 * rank / hvd.size() / n), exact=False)
    assert applied == [2, 5] and int(Optimizer.iterations) == 6


def test_aggregation_refuses():
    kinds = [
        lambda n: LocalGradientAggregationHelperEager(n, None, False, False),
        lambda n: LocalGradientAggregationHelper(
            n, None, False, False, hvd.rank(), LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY
        ),
    ]
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
    for make in kinds:
        with pytest.raises(ValueError, match="must be > 0"):
            make(0)
        with pytest.raises(ValueError, match="sparse_as_dense"):
            make(2).compute_gradients([slices], [tf.Variable(tf.ones([3, 2]))])


# ---- making ranks equal


VALUES = [np.arange(3.0), np.float32(1.5), np.ones((0, 2), np.int32), np.array([True, False]), np.int64(1)]


def variables_of(rank, **options):
    return [tf.Variable(np.logical_xor(x, rank % 2) if x.dtype == bool else x + x.dtype.type(rank)) for x in VALUES]


@pytest.mark.parametrize("inplace", [False, True])
def test_broadcast_variables(inplace):
    root = hvd.size() - 1
    variables = variables_of(hvd.rank())
    hvd.broadcast_variables(variables, root, inplace=inplace)
    for variable, other in zip(variables, variables_of(root)):
        check(variable, other.numpy())
    hvd.broadcast_variables([], root)


def test_broadcast_variables_of_other_names():
    variable = tf.Variable(float(hvd.rank()), name="a" if hvd.rank() else "b")
    hvd.broadcast_variables([variable], 0)
    check(variable, np.float32(0))


def test_broadcast_underscore():
    variables = variables_of(hvd.rank())
    values = hvd.broadcast_(variables, 0, name="mine")
    for variable, value, other in zip(variables, values, variables_of(0)):
        check(variable, other.numpy())
        check(value, other.numpy())


def address(variable):
    return np.asarray(memoryview(variable.read_value())).ctypes.data


def test_inplace_broadcast_keeps_memory_and_spares_readers():
    variable = tf.Variable(np.full(1000, hvd.rank() + 1.0))
    hvd.broadcast_variables([variable], 0, inplace=True)  # the memory may have been that of the initial value, too
    place = address(variable)
    hvd.broadcast_variables([variable], 0, inplace=True)
    if hasattr(mpi_ops._native, "horovod_broadcast_inplace"):
        assert address(variable) == place
    variable.assign_add(np.full(1000, float(hvd.rank())))
    before = variable.read_value()
    hvd.broadcast_variables([variable], 0, inplace=True)
    check(before, np.full(1000, hvd.rank() + 1.0))
    check(variable, np.ones(1000))


def test_inplace_broadcast_has_its_place_among_assignments():
    variable = tf.Variable(np.zeros(3))

    @tf.function
    def function(x):
        variable.assign(x)
        hvd.broadcast_variables([variable], 0, inplace=True)
        variable.assign_add(x)
        return variable * 2

    for i in range(5):
        check(function(np.full(3, float(hvd.rank() + i))), np.full(3, 2.0 * (i + hvd.rank() + i)))


def test_broadcast_variables_in_a_function_and_on_a_set(evens):
    v = tf.Variable(float(hvd.rank()))

    @tf.function
    def function():
        hvd.broadcast_variables([v], evens.ranks[-1], process_set=evens)

    if hvd.rank() % 2 == 0:
        function()
        assert v.numpy() == evens.ranks[-1]
    else:
        assert v.numpy() == hvd.rank()


@pytest.mark.parametrize("inplace", [False, True])
def test_broadcast_in_a_session(use_resource, inplace):
    with tf.Graph().as_default() as graph:
        start = np.array([hvd.rank(), 2.0])
        variables = [v1.get_variable(f"v{i}", initializer=start + i, use_resource=use_resource) for i in range(3)]
        if inplace:
            operation = hvd.broadcast_variables(variables, 0, inplace=True)
        else:
            operation = hvd.broadcast_global_variables(0)
        init = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=v1.ConfigProto(inter_op_parallelism_threads=1)) as session:
        session.run(init)
        session.run(operation)
        for i, value in enumerate(session.run(variables)):
            check(value, np.array([0, 2.0]) + i)


def test_hook():
    hook = hvd.BroadcastGlobalVariablesHook(hvd.size() - 1)
    for _ in range(2):  # the second time in another graph
        with tf.Graph().as_default():
            v = v1.get_variable("v", initializer=float(hvd.rank()))
            with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                assert session.run(v) == hvd.size() - 1


def test_hook_on_a_process_set(evens):
    rank, root = hvd.rank(), evens.ranks[-1]
    with tf.Graph().as_default():
        v = v1.get_variable("v", initializer=float(rank))
        hooks = [hvd.BroadcastGlobalVariablesHook(root, process_set=evens)] if evens.included() else []
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            assert session.run(v) == (root if evens.included() else rank)


def test_global_variables_need_a_graph():
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)


def test_objects():
    rank, n = hvd.rank(), hvd.size()
    thing = {"rank": rank, "text": "x" * 1000 * rank, "array": np.arange(rank)}
    got = hvd.broadcast_object(thing, n - 1)
    assert got["rank"] == n - 1 and len(got["text"]) == 1000 * (n - 1)
    assert (got is thing) == (rank == n - 1)
    send = hvd.broadcast_object_fn(0, name="again")
    assert [send((rank, i)) for i in range(2)] == [(0, 0), (0, 1)]
    assert [x["rank"] for x in hvd.allgather_object(thing)] == list(range(n))
    assert hvd.allgather_object(None) == [None] * n


def test_objects_in_a_session(evens):
    rank = hvd.rank()
    with tf.Graph().as_default() as graph:
        send = hvd.broadcast_object_fn(0)
        with v1.Session(graph=graph) as session:
            assert hvd.broadcast_object(f"from {rank}", session=session) == "from 0"
            assert hvd.allgather_object(rank) == list(range(hvd.size()))
            if rank % 2 == 0:
                assert hvd.allgather_object(rank, process_set=evens, name="evens") == evens.ranks
            graph.finalize()
            assert [send((rank, i)) for i in range(2)] == [(0, 0), (0, 1)]
        with pytest.raises(ValueError, match="session"):
            send(1)


def test_small_functions_that_programs_import():
    from horovod.tensorflow import util

    assert hvd._executing_eagerly() and util._executing_eagerly()
    assert not tf.function(lambda: tf.constant(hvd._executing_eagerly()))()
    calls = []
    cached = util._cache(lambda *args, **kwargs: calls.append((args, kwargs)) or len(calls))
    assert [cached(1), cached(1), cached(2), cached(1, of=3), cached(1, of=3)] == [1, 1, 2, 3, 3]
    with tf.Graph().as_default():
        assert not hvd._executing_eagerly()
        assert [cached(1), cached(1)] == [4, 4]
    a, b = tf.Variable(1.0), tf.Variable(2.0)
    refs = util.vars_to_refs([a, [b]])
    assert {refs: "found"}[util.vars_to_refs([a, [b]])] == "found"
    back = util.refs_to_vars(refs)
    assert back[0] is a and back[1][0] is b
    assert util._make_subgraph(lambda x: x + 1)(a).numpy() == 2
    hvd.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", hvd.__file__, "mpi_lib")


# ---- where Horovod began


def test_mpi_collectives():
    from horovod.tensorflow import mpi_collectives as mpi

    with tf.Graph().as_default() as graph:
        initialised = mpi.init()
        x = tf.fill([hvd.rank() + 1, 2], float(hvd.rank()))
        fetches = [
            mpi.size(),
            mpi.rank(),
            mpi.local_rank(),
            mpi.allreduce(tf.reduce_sum(x)),
            mpi.allreduce(tf.constant(2.0), average=False, name="sum"),
            mpi.allgather(x),
        ]
        assert isinstance(mpi.DistributedOptimizer(v1.train.AdamOptimizer()), v1.train.Optimizer)
        run(graph, initialised)
        size, rank, local_rank, mean, total, rows = run(graph, fetches)
    n = hvd.size()
    assert (size, rank, local_rank, total) == (n, hvd.rank(), hvd.local_rank(), 2 * n)
    check(mean, np.float32(np.mean([2 * r * (r + 1) for r in range(n)])), exact=False)
    check(rows, np.concatenate([np.full((r + 1, 2), r, np.float32) for r in range(n)]))
