"""Sparse tables by tensornet's operations: eagerly, in functions and in sessions, against one process."""

import numpy as np
import pytest
import tensorflow as tf
from worlds import MODES, run

import horovod.tensorflow as hvd
from horovod.tensorflow import sparse
from horovod.tensorflow.sparse.gen_sparse_table_ops import sparse_table_pull, sparse_table_push

pytestmark = pytest.mark.usefixtures("job")

every_mode = pytest.mark.parametrize("mode", [m.__name__ for m in MODES])
KEYS, DIM, ROOM = 30, 3, 64
SPREAD = 10**15 + 7  # keys of any size, and of both signs


class Columns:
    """Columns of keys with a variable each, and functions of arrays that pull and push in one of the modes."""

    def __init__(self, mode, handle, columns=2, dim=DIM, room=ROOM):
        self.handle, self.mode = handle, mode
        if mode == "in_session":
            self._build(columns, dim, room)
            return
        self.variables = [tf.Variable(tf.fill([room, dim], -1.0)) for _ in range(columns)]
        wrap = tf.function(reduce_retracing=True) if mode == "in_function" else lambda f: f
        self._pull = wrap(lambda keys: sparse_table_pull([v.handle for v in self.variables], keys, handle))
        self._push = wrap(self._pushes)

    def _pushes(self, keys, grads):
        sparse_table_push(keys, grads, [tf.zeros_like(k) for k in keys], self.handle)

    def _build(self, columns, dim, room):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.keys = [tf.compat.v1.placeholder(tf.int64, [None]) for _ in range(columns)]
            self.grads = [tf.compat.v1.placeholder(tf.float32, [None, None]) for _ in range(columns)]
            variables = [
                tf.compat.v1.get_variable(f"column{i}", [room, dim], use_resource=True) for i in range(columns)
            ]
            ready = tf.group(*[v.initializer for v in variables])
            with tf.control_dependencies([ready]):
                index = sparse_table_pull([v.handle for v in variables], self.keys, self.handle)
            with tf.control_dependencies(index):
                self.pulled = [index, [v.read_value() for v in variables]]
            labels = [tf.zeros_like(k) for k in self.keys]
            self.pushed = sparse_table_push(self.keys, self.grads, labels, self.handle)

    def pull(self, *keys):
        """For each column, the numbers of the keys' rows, and the variable."""
        if self.mode == "in_session":
            return run(self.graph, self.pulled, dict(zip(self.keys, keys)))
        index = self._pull([tf.constant(k, tf.int64) for k in keys])
        return [i.numpy() for i in index], [v.numpy() for v in self.variables]

    def push(self, keys, grads):
        if self.mode == "in_session":
            run(self.graph, self.pushed, dict(zip([*self.keys, *self.grads], [*keys, *grads])))
        else:
            self._push([tf.constant(k, tf.int64) for k in keys], [tf.constant(g, tf.float32) for g in grads])


def numbered(keys):
    """The distinct keys in the order of their first appearance, and the place of each key there."""
    distinct = list(dict.fromkeys(int(k) for k in keys))
    return distinct, [distinct.index(int(k)) for k in keys]


def rows_of(handle, keys, dim=DIM):
    """The rows of keys, from all ranks."""
    variable = tf.Variable(tf.zeros([len(keys), dim]))
    [index] = sparse_table_pull([variable], [tf.constant(keys, tf.int64)], handle)
    return variable.numpy()[index.numpy()]


def batch(step, rank):
    """The keys and gradients of the columns of a rank: 0 to 9 keys each."""
    random = np.random.RandomState(100 * step + rank)
    keys = [random.randint(KEYS, size=random.randint(10)) * SPREAD - SPREAD * KEYS // 2 for _ in range(2)]
    return keys, [random.randn(len(numbered(k)[0]), DIM).astype(np.float32) for k in keys]


EVERY = [k * SPREAD - SPREAD * KEYS // 2 for k in range(KEYS)]


@every_mode
def test_rows_are_numbered_in_the_order_of_appearance(mode):
    handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), f"order {mode}", DIM)
    columns = Columns(mode, handle)
    keys = [np.array([5, -7, 5, 2**62]), np.array([2**62, hvd.rank(), 2**62])]
    index, variables = columns.pull(*keys)
    assert [i.tolist() for i in index] == [[0, 1, 0, 2], [0, 1, 0]]
    np.testing.assert_array_equal(variables[0][:3], rows_of(handle, [5, -7, 2**62]))
    np.testing.assert_array_equal(variables[1][:2], rows_of(handle, [2**62, hvd.rank()]))
    if mode != "in_session":
        assert (variables[0][3:] == -1).all() and (variables[1][2:] == -1).all()
    index, variables = columns.pull(np.array([], np.int64), np.array([-7]))
    assert [i.tolist() for i in index] == [[], [0]]
    np.testing.assert_array_equal(variables[1][0], rows_of(handle, [-7])[0])


def step_of_adagrad(rows, sums, updates, rate, epsilon):
    """A push in one process: ``updates`` are the sums of gradients by key. In float32, as the table has it."""
    for key, g in updates.items():
        square = np.float32(0)
        for x in g:
            square += x * x
        sums[key] += square / np.float32(DIM)
        rows[key] -= np.float32(rate) / (np.sqrt(sums[key]) + np.float32(epsilon)) * g


def added(step):
    """The gradients of a step by key: those of a rank over its columns, then those of the ranks in their order."""
    total = {}
    for rank in range(hvd.size()):
        own = {}
        for keys, grads in zip(*batch(step, rank)):
            for key, g in zip(numbered(keys)[0], grads):
                own[key] = own[key] + g if key in own else g
        for key, g in own.items():
            total[key] = total[key] + g if key in total else g
    return total


@pytest.mark.smoke
@every_mode
def test_training_has_the_bits_of_one_process(mode):
    opt = sparse.AdaGrad(0.1, initial_g2sum=0.5, epsilon=1e-3)
    handle = sparse.create_sparse_table(opt, f"training {mode}", DIM)
    columns = Columns(mode, handle)
    rows = dict(zip(EVERY, rows_of(handle, EVERY)))
    sums = dict.fromkeys(EVERY, np.float32(0.5))
    for step in range(8):
        keys, grads = batch(step, hvd.rank())
        columns.pull(*keys)
        columns.push(keys, grads)
        step_of_adagrad(rows, sums, added(step), 0.1, 1e-3)
        np.testing.assert_array_equal(rows_of(handle, EVERY), np.array([rows[k] for k in EVERY]))


def test_new_rows_are_normal():
    keys = np.arange(20_000) * 7919 - (1 << 40)
    for scale in (1, 0.1):
        rows = rows_of(sparse.create_sparse_table(sparse.Adam(0.1, initial_scale=scale), dimension=16), keys, 16)
        assert abs(rows.mean()) < 0.01 * scale and abs(rows.std() - scale / 4) < 0.01 * scale


def test_gradients_of_variables():
    """IndexedSlices, as tapes return them, are added in the order of the batch."""
    handle = sparse.create_sparse_table(sparse.Ftrl(1.0, lambda1=0, lambda2=0), dimension=1)
    variable = tf.Variable(tf.zeros([ROOM, 1]))
    keys = tf.constant([[9, 8], [9, 7]], tf.int64)
    [index] = sparse_table_pull([variable], [keys], handle)
    assert index.shape == [2, 2]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(variable, index) * tf.constant([[[1.0], [3.0]], [[2.0], [4.0]]]))
    gradient = tape.gradient(loss, variable)
    assert isinstance(gradient, tf.IndexedSlices)
    sparse_table_push([keys], [gradient], [tf.zeros_like(keys)], handle)
    # FTRL with these numbers: w = -z / (beta + |g|) of the first gradient, and z = g - |g| * w of the new row.
    g = hvd.size() * np.array([3, 3, 4], np.float32)
    np.testing.assert_allclose(rows_of(handle, [9, 8, 7], 1)[:, 0], -(g - g * variable.numpy()[:3, 0]) / (1 + g), 1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
def test_rates_change(compiled):
    """A schedule of Keras, a function, and a number that the program sets."""
    opt = sparse.Adam(tf.keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5), beta1=0, beta2=0, epsilon=0)
    handle = sparse.create_sparse_table(opt, dimension=1)
    columns = Columns("in_function" if compiled else "eagerly", handle, 1, 1)

    def moved():
        before = rows_of(handle, [1], 1)
        columns.push([[1]], [[[3.0]]])
        return float((before - rows_of(handle, [1], 1))[0, 0])

    np.testing.assert_allclose([moved() for _ in range(3)], [1, 0.5, 0.25], 1e-5)
    opt.learning_rate = 2.0
    np.testing.assert_allclose(moved(), 2, 1e-5)
    opt.learning_rate = lambda n: n
    np.testing.assert_allclose(moved(), 4, 1e-5)
    opt.learning_rate = lambda n: 1 / 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="ZeroDivisionError: division by zero"):
        moved()
    opt.learning_rate = 1.0
    np.testing.assert_allclose(moved(), 1, 1e-5)


def test_groups_share_a_table():
    films = sparse.create_sparse_table(sparse.AdaGrad(0.1), "films", 4, embedding_group="shared")
    assert sparse.create_sparse_table(sparse.AdaGrad(0.1), "series", 4, embedding_group="shared") == films
    assert sparse.create_sparse_table(sparse.AdaGrad(0.1), "songs", 4, embedding_group="other") != films
    with pytest.raises(ValueError, match=r"'shared' has table 'films' with .*'dim': 4.*not with .*'dim': 5"):
        sparse.create_sparse_table(sparse.AdaGrad(0.1), "series", 5, embedding_group="shared")


def test_uneven_data():
    """Ranks that have joined serve their rows."""
    handle = sparse.create_sparse_table(sparse.Ftrl(1.0, lambda1=0, lambda2=0, initial_scale=0), dimension=1)
    columns = Columns("eagerly", handle, 1, 1)
    steps = hvd.rank() + 1
    for _ in range(steps):
        columns.pull(np.arange(KEYS))
        columns.push([np.arange(KEYS)], [np.ones([KEYS, 1])])
    hvd.join()
    z, n, w = 0.0, 0.0, 0.0
    for step in range(hvd.size()):
        g = hvd.size() - step
        z, n = z + g - ((n + g * g) ** 0.5 - n**0.5) * w, n + g * g
        w = -z / (1 + n**0.5)
    np.testing.assert_allclose(rows_of(handle, np.arange(KEYS), 1), np.full([KEYS, 1], w), 1e-5)


# ---- mistakes


def test_arguments():
    for make, says in [
        (lambda: sparse.create_sparse_table("adagrad"), "opt must be an AdaGrad, an Adam or an Ftrl"),
        (lambda: sparse.create_sparse_table(sparse.Adam(0.1), dimension=0), "dimension must be an int above 0, not 0"),
        (lambda: sparse.create_sparse_table(sparse.Adam(0.1), use_cvm=True), "use_cvm=True is not possible"),
        (lambda: sparse.AdaGrad(0.1, show_threshold=3), r"AdaGrad\(show_threshold=3\) is not .*leave it at 0"),
        (lambda: sparse.AdaGrad(0.1, grad_decay_rate=0.9), r"AdaGrad\(grad_decay_rate=0.9\) is not possible"),
        (lambda: sparse.create_sparse_table(sparse.Adam(-1.0)), "lr must be a number from 0 on, not -1.0"),
        (lambda: sparse.create_sparse_table(sparse.Adam(1.0, beta1=1.0)), "beta1 is 1; it must be a number .*below 1"),
    ]:
        with pytest.raises((TypeError, ValueError, NotImplementedError), match=says):
            make()
    handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), dimension=DIM)
    room, keys = tf.Variable(tf.zeros([4, DIM])), tf.constant([1, 2], tf.int64)
    slices = tf.IndexedSlices(tf.zeros([2, DIM], tf.float64), [0, 1])
    for use, says in [
        (lambda: sparse_table_pull([room], [keys], 10**6), "no table has the handle 1000000"),
        (lambda: sparse_table_pull([room], [keys], "words"), "table_handle must be the result of create_sparse_table"),
        (lambda: sparse_table_pull([room, room], [keys], handle), "2 resources for 1 columns of values"),
        (lambda: sparse_table_pull([room], keys, handle), "values must be a list with the keys of each column"),
        (lambda: sparse_table_pull([room], [[1.5]], handle), "column 0 has keys of float32: they must be int64"),
        (lambda: sparse_table_pull([keys], [keys], handle), "column 0 needs a resource variable or its handle"),
        (
            lambda: sparse_table_pull([room, tf.Variable(tf.zeros([4, DIM], tf.float64))], [keys, keys], handle),
            "column 1 has a variable of float64: it must be float32",
        ),
        (lambda: sparse_table_push([keys], [], [keys], handle), "0 grads for 1 columns"),
        (lambda: sparse_table_push([keys], [tf.zeros([2, DIM])], [], handle), "0 feature_labels for 1 columns"),
        (
            lambda: sparse_table_push([keys], [tf.zeros([2, DIM], tf.float64)], [keys], handle),
            "column 0 has gradients of float64: they must be float32",
        ),
        (lambda: sparse_table_push([keys], [slices], [keys], handle), "column 0 has gradients of float64"),
    ]:
        with pytest.raises((TypeError, ValueError), match=says):
            use()


@every_mode
def test_what_does_not_fit_is_named_on_all_ranks(mode):
    """A mistake of the last rank. The next calls work."""
    handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), f"mistakes {mode}", DIM)
    columns = Columns(mode, handle, room=4)
    bad = hvd.rank() == hvd.size() - 1
    error = tf.errors.InvalidArgumentError if bad else tf.errors.FailedPreconditionError
    good = [np.arange(4), np.array([3])]
    with pytest.raises(error, match="column 1 has 5 distinct keys, but its variable has 4 rows"):
        columns.pull(good[0], np.array([1, 2, 1, 3, 4, 5]) if bad else good[1])
    for grads, says in [
        ([np.zeros([4, DIM]), np.zeros([2, DIM])], "column 1 has gradients of 2 rows for 1 distinct keys"),
        ([np.zeros([4, DIM + 1]), np.zeros([1, DIM])], "column 0 has gradients of 4 numbers a row, and .* have 3"),
    ]:
        with pytest.raises(error, match=says):
            columns.push(good, grads if bad else [np.zeros([4, DIM]), np.zeros([1, DIM])])
    index, _ = columns.pull(*good)
    assert index[0].tolist() == [0, 1, 2, 3]
    other = Columns(mode, handle, dim=DIM + bad)
    with pytest.raises(error, match="column 0 has a variable of 4 columns, and the table's rows have 3 numbers"):
        other.pull(*good)


@pytest.mark.skipif("hvd.size() == 1")
def test_ranks_that_differ():
    here = hvd.rank() == 1
    for what, opt, dim in [
        ("dim", sparse.AdaGrad(0.1), 2 + here),
        ("optimizer", (sparse.AdaGrad if here else sparse.Adam)(0.1), 2),
        ("eps", sparse.AdaGrad(0.1, epsilon=0.5 if here else 0.25), 2),
    ]:
        says = f'table "differ.{what}": Mismatched {what}: rank 0 has .*, rank 1 has'
        with pytest.raises(hvd.HorovodInternalError, match=says):
            sparse.create_sparse_table(opt, f"differ.{what}", dim)
    opt = sparse.AdaGrad(1.0 + hvd.rank())
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched lr: rank 0 has 1, rank 1 has 2"):
        sparse.create_sparse_table(opt, dimension=1)
    opt = sparse.AdaGrad(1.0)
    handle = sparse.create_sparse_table(opt, dimension=1)
    opt.learning_rate = 1.0 + hvd.rank()
    columns = Columns("eagerly", handle, 1, 1)
    with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched learning rates: rank 0 has 1, .* 2"):
        columns.push([[5]], [[[1.0]]])


@pytest.fixture
def checked(job, monkeypatch):
    """The job, joined anew with a check of gradients; afterwards it is as before."""
    job.shutdown()
    monkeypatch.setenv("GOROVOD_NAN_CHECK", "abort")
    job.init()
    yield job
    job.shutdown()
    monkeypatch.delenv("GOROVOD_NAN_CHECK")
    job.init()


def test_a_nan_names_its_key(checked):
    columns = Columns("in_function", sparse.create_sparse_table(sparse.AdaGrad(0.1), "clicks", DIM))
    keys, grads = [np.array([4, 5, 6]), np.array([5])], [np.ones([3, DIM]), np.ones([1, DIM])]
    columns.push(keys, grads)
    if checked.rank() == checked.size() - 1:
        grads[0][2, 1] = np.nan
    with pytest.raises(tf.errors.OpError, match=f"rank {checked.size() - 1} .*a NaN to push .*clicks.*key 6"):
        columns.push(keys, grads)


def test_tables_end_with_the_job(job):
    handle = sparse.create_sparse_table(sparse.AdaGrad(0.1), dimension=DIM)
    room, keys = tf.Variable(tf.zeros([4, DIM])), tf.constant([1, 2], tf.int64)
    pull = tf.function(lambda: sparse_table_pull([room], [keys], handle))
    pull()
    job.shutdown()
    job.init()
    with pytest.raises(ValueError, match=f"no table has the handle {handle}: make it after hvd.init"):
        sparse_table_pull([room], [keys], handle)
    with pytest.raises(tf.errors.OpError):
        pull()
    assert sparse.create_sparse_table(sparse.AdaGrad(0.1), dimension=DIM) != handle
