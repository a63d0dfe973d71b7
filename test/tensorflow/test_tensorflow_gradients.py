"""Gradients of the collectives, against their definition, by tapes and in graphs of TensorFlow 1.

Each test weights the results of each rank by numbers w. The gradient is that of sum(w * result), as Horovod defines it:
for allgather and broadcast it is averaged over the ranks.
"""

import numpy as np
import pytest
import tensorflow as tf
from worlds import check, in_session, parts

import horovod.tensorflow as hvd

pytestmark = pytest.mark.usefixtures("job")


def by_tape(function, x, w):
    """The gradient of sum(w * function(x)) for x; several results have weights of the same number."""
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = weighted(function(x), w)
    return tape.gradient(loss, x).numpy()


def by_function(function, x, w):
    return tf.function(lambda t: gradient_in_graph(function, t, w), autograph=False)(tf.convert_to_tensor(x)).numpy()


def by_session(function, x, w):
    return in_session(lambda t: gradient_in_graph(function, t, w), x)


def gradient_in_graph(function, x, w):
    return tf.gradients(weighted(function(x), w), [x])[0]


def weighted(results, ws):
    results, ws = (results, ws) if isinstance(results, (list, tuple)) else ([results], [ws])
    return tf.add_n([tf.reduce_sum(tf.cast(w, r.dtype) * r) for r, w in zip(results, ws)])


every_way = pytest.mark.parametrize("way", [by_tape, by_function, by_session], ids=lambda w: w.__name__)


def weights(rank, shape):
    return np.random.RandomState(7 * rank + 1).randint(-3, 4, shape).astype(np.float64)


def data(shape):
    return np.random.RandomState(hvd.rank()).rand(*shape)


@every_way
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_allreduce(way, op):
    n = hvd.size()
    ws = [weights(r, (3, 2)) for r in range(n)]
    gradient = way(
        lambda x: hvd.allreduce(x, op=getattr(hvd, op), prescale_factor=2.0, postscale_factor=0.25),
        data((3, 2)),
        ws[hvd.rank()],
    )
    check(gradient, 0.5 * sum(ws) / (n if op == "Average" else 1), exact=False)


@every_way
def test_grouped_allreduce(way):
    ws = [[weights(r, (2,)), weights(r + 9, (2,))] for r in range(hvd.size())]
    gradient = way(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum), data((2,)), ws[hvd.rank()])
    check(gradient, sum(w[0] + 2 * w[1] for w in ws))


@every_way
def test_allgather(way):
    """Rank r has r + 1 rows."""
    n, me = hvd.size(), hvd.rank()
    counts = [r + 1 for r in range(n)]
    ws = [weights(r, (sum(counts), 2)) for r in range(n)]
    gradient = way(hvd.allgather, data((me + 1, 2)), ws[me])
    check(gradient, np.split(sum(ws) / n, np.cumsum(counts)[:-1])[me], exact=False)


@every_way
def test_grouped_allgather(way):
    n, me = hvd.size(), hvd.rank()
    counts = [r + 1 for r in range(n)]
    ws = [[weights(r, (sum(counts),)), weights(r + 9, (sum(counts),))] for r in range(n)]
    gradient = way(lambda x: hvd.grouped_allgather([x, 3 * x]), data((me + 1,)), ws[me])
    mean = sum(w[0] + 3 * w[1] for w in ws) / n
    check(gradient, np.split(mean, np.cumsum(counts)[:-1])[me], exact=False)


@every_way
def test_broadcast(way):
    n, root = hvd.size(), hvd.size() - 1
    ws = [weights(r, (4,)) for r in range(n)]
    gradient = way(lambda x: hvd.broadcast(x, root), data((4,)), ws[hvd.rank()])
    check(gradient, sum(ws) / n if hvd.rank() == root else np.zeros(4), exact=False)


@every_way
def test_alltoall(way):
    """Rank r sends r + i + 1 rows to rank i, so the gradient's rows come back from there."""
    n, me = hvd.size(), hvd.rank()
    splits = np.array([[r + i + 1 for i in range(n)] for r in range(n)], np.int32)
    ws = [weights(r, (splits[:, r].sum(), 2)) for r in range(n)]
    gradient = way(lambda x: hvd.alltoall(x, splits=splits[me])[0], data((splits[me].sum(), 2)), ws[me])
    back = [np.split(ws[i], np.cumsum(splits[:, i])[:-1])[me] for i in range(n)]
    check(gradient, np.concatenate(back))


@every_way
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_reducescatter(way, op):
    n, me = hvd.size(), hvd.rank()
    rows = 2 * n + 1
    ws = [weights(r, part.shape) for r, part in enumerate(parts(np.zeros((rows, 2)), n))]
    gradient = way(
        lambda x: hvd.reducescatter(x, op=getattr(hvd, op), prescale_factor=0.5, postscale_factor=3.0),
        data((rows, 2)),
        ws[me],
    )
    check(gradient, 1.5 * np.concatenate(ws) * (n if op == "Sum" else 1), exact=False)


@every_way
def test_grouped_reducescatter(way):
    n, me = hvd.size(), hvd.rank()
    ws = [[weights(r, (1,)), weights(r + 9, (1,))] for r in range(n)]
    gradient = way(lambda x: hvd.grouped_reducescatter([x, 2 * x], op=hvd.Average), data((n,)), ws[me])
    check(gradient, np.concatenate([w[0] + 2 * w[1] for w in ws]))


@every_way
def test_in_a_process_set(way, evens):
    if hvd.rank() % 2:
        return
    ranks = evens.ranks
    n, place = len(ranks), evens.rank()
    ws = {r: weights(r, (2 * n, 2)) for r in ranks}
    mean = sum(ws.values()) / n
    x, w = data((2, 2)), ws[hvd.rank()]
    check(way(lambda t: hvd.allgather(t, process_set=evens), x, w), mean[2 * place :][:2], exact=False)
    y = data((2 * n, 2))
    check(way(lambda t: hvd.allreduce(t, process_set=evens), y, w), mean, exact=False)
    root = ranks[-1]
    expected = mean if hvd.rank() == root else 0 * mean
    check(way(lambda t: hvd.broadcast(t, root, process_set=evens), y, w), expected, exact=False)
    mine = weights(hvd.rank(), (2, 2))
    gathered = np.concatenate([weights(r, (2, 2)) for r in ranks])
    scattered = way(lambda t: hvd.reducescatter(t, op=hvd.Sum, process_set=evens), y, mine)
    check(scattered, n * gathered)


def test_second_order():
    """d²/dx² of sum(allreduce(x)³): all x are equal, so the derivatives are those of one rank alone."""
    x = tf.constant([1.0, 2.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.reduce_sum(hvd.allreduce(x, op=hvd.Average) ** 3)
        first = inner.gradient(y, x)
        loss = tf.reduce_sum(first)
    check(first, np.array([3.0, 12.0]), exact=False)
    check(outer.gradient(loss, x), np.array([6.0, 12.0]), exact=False)


def test_infinite_gradients_stay_with_the_root():
    """0 * inf would be NaN on the others."""
    gradient = by_tape(lambda x: hvd.broadcast(x, 0), np.ones(1), np.array([np.inf]))
    assert gradient[0] == (np.inf if hvd.rank() == 0 else 0)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("grouped", [hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter])
def test_incoming_gradients_of_other_types(grouped, compiled):
    """As when a part of the model computes in float16, and its gradients have that type."""

    @tf.custom_gradient
    def narrow(x):
        return tf.identity(x), lambda grad: tf.cast(grad, tf.float16)

    def gradients():
        xs = [tf.ones([hvd.size(), 2]), tf.ones([hvd.size()])]
        with tf.GradientTape() as tape:
            tape.watch(xs)
            first, second = grouped(xs)
            total = 2 * tf.reduce_sum(narrow(first)) + 3 * tf.reduce_sum(second)
        return tape.gradient(total, xs)

    first, second = (tf.function(gradients, autograph=False) if compiled else gradients)()
    check(first, np.full((hvd.size(), 2), 2, np.float32))
    check(second, np.full(hvd.size(), 3, np.float32))


def test_an_incoming_gradient_of_another_type_on_one_rank():
    """Those of the other ranks are float32. All ranks must send the operation's type."""
    x = tf.ones([2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.allreduce(x, op=hvd.Sum)
        own = tf.cast(y, tf.float16) if hvd.rank() == 0 else y
        total = tf.reduce_sum(tf.cast(own, tf.float32))
    check(tape.gradient(total, x), np.full(2, hvd.size(), np.float32))


def test_incoming_gradients_that_are_slices():
    """As when a model looks up rows of a result."""
    rows = tf.reshape(tf.range(4.0 * hvd.size()), [-1, 2])
    for operation, factor in (
        (lambda x: hvd.allreduce(x, op=hvd.Sum), hvd.size()),
        (lambda x: hvd.broadcast(x, 0), 1 if hvd.rank() == 0 else 0),
    ):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            total = tf.reduce_sum(tf.gather(operation(rows), [1, 1]))
        expected = np.zeros(rows.shape, np.float32)
        expected[1] = 2 * factor
        check(tf.convert_to_tensor(tape.gradient(total, rows)), expected)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        total = tf.reduce_sum(tf.gather(hvd.reducescatter(rows, op=hvd.Sum, postscale_factor=2.0), [1]))
    expected = np.zeros(rows.shape, np.float32)
    expected[1::2] = 2 * hvd.size()
    check(tf.convert_to_tensor(tape.gradient(total, rows)), expected)
