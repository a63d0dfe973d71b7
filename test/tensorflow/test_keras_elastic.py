"""State of training with Keras and TensorFlow that can be rolled back, and the loop around it."""

import keras_models as models
import numpy as np
import pytest
from keras_models import FRONT_ENDS, dense, fit, loss


@pytest.fixture(params=FRONT_ENDS)
def front(request, job):
    return models.front_end(request.param)


def compiled(hvd, keras, seed=0):
    model = dense(keras)
    models.set_weights(model, seed)
    model.compile(hvd.DistributedOptimizer(models.make_optimizer(keras, "SGD")), loss(keras))
    return model


def test_state_is_saved_restored_and_that_of_rank_0(front, job):
    hvd, keras = front
    model = compiled(hvd, keras, seed=hvd.rank())
    state = hvd.elastic.KerasState(model, batch=hvd.rank(), epoch=5)
    state.sync()
    assert state.batch == 0 and state.epoch == 5
    start = model.get_weights()
    for weight in start:
        np.testing.assert_array_equal(hvd.broadcast(weight, 0), weight)
    fit(model, hvd, epochs=1)
    state.batch = 7
    state.restore()
    assert state.batch == 0
    models.assert_same_weights(model.get_weights(), start)
    # The momentum, too: the same training gives the same again.
    fit(model, hvd, epochs=1)
    first = model.get_weights()
    state.restore()
    fit(model, hvd, epochs=1)
    models.assert_same_weights(model.get_weights(), first)
    with pytest.raises(ValueError, match="Model must be built first"):
        hvd.elastic.KerasState(dense(keras, built=False))
    assert isinstance(job.elastic.TensorFlowKerasState(model, epoch=1).epoch, int)


def test_what_holds_a_model_or_an_optimizer_is_refused(front):
    """After a sync, other ranks would have a copy, which drives a copy of the model."""
    hvd, keras = front
    model = compiled(hvd, keras)
    callback = keras.callbacks.ReduceLROnPlateau()
    callback.set_model(model)
    for value in (callback, [model], {"a": model.optimizer}, [model.layers[0]]):
        with pytest.raises(TypeError, match=r"State\(mine=\.\.\.\) is a .* holds a .*Keep it outside the state"):
            hvd.elastic.KerasState(model, mine=value)
    plain = [1, np.ones(2), keras.callbacks.ReduceLROnPlateau()]
    assert hvd.elastic.KerasState(model, mine=plain).mine is plain


def test_callbacks_keep_the_state(front):
    hvd, keras = front
    model = compiled(hvd, keras)
    state = hvd.elastic.KerasState(model, batch=0, epoch=3)
    commits = []
    state.commit = lambda: commits.append((state.epoch, state.batch))
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=3),
    ]
    fit(model, hvd, epochs=2, callbacks=callbacks)
    assert state.epoch == 5 and state.batch == 0
    assert commits == [(3, 2), (4, 0), (4, 1), (5, 0)]


def test_run_goes_on_after_an_error_of_a_collective(front):
    import tensorflow as tf

    hvd, keras = front
    model = compiled(hvd, keras)
    state = hvd.elastic.KerasState(model, epoch=0)
    attempts = []

    @hvd.elastic.run
    def train(state):
        attempts.append(state.epoch)
        fit(model, hvd, epochs=2 - state.epoch, callbacks=[hvd.elastic.UpdateEpochStateCallback(state), Fail()])
        return "done"

    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            state.commit()
            if len(attempts) > 1:
                return
            if hvd.rank() == hvd.size() - 1:
                hvd.shutdown()  # as if it had died
                raise tf.errors.UnknownError(None, None, "HorovodAllreduce: one rank is enough for this error")
            hvd.allreduce([1.0])
            raise AssertionError("an allreduce with a rank that has left succeeded")

    state.register_reset_callbacks([lambda: attempts.append("reset")])
    assert hvd.elastic.run(lambda state: 1)(state) == 1
    with pytest.raises(ZeroDivisionError):
        hvd.elastic.run(lambda state: 1 / 0)(state)
    assert train(state) == "done"
    assert attempts == [0, "reset", 1]
    models.assert_same_weights(model.get_weights(), models.alone(keras, models.make_optimizer(keras, "SGD")))


def test_tensorflow_state(job):
    import tensorflow as tf

    variables = [tf.Variable([1.0 + job.rank()]), tf.Variable(3)]
    state = job.elastic.TensorFlowState(variables, batch=job.rank())
    state.sync()
    assert variables[0].numpy() == [1.0] and state.batch == 0
    variables[0].assign([9.0])
    state.restore()
    assert variables[0].numpy() == [1.0]
    variables[0].assign([2.0])
    state.commit()
    variables[0].assign([9.0])
    state.restore()
    assert variables[0].numpy() == [2.0]


def test_variables_in_plain_values_of_a_tensorflow_state_are_refused(job):
    import tensorflow as tf

    with pytest.raises(TypeError, match=r"TensorFlowState\(mine=\.\.\.\) is a list that holds a .*Pass its variables"):
        job.elastic.TensorFlowState([], mine=[tf.Variable(1.0)])


def test_what_holds_a_model_or_an_optimizer_is_refused_by_a_tensorflow_state(front, job):
    hvd, keras = front
    import tensorflow as tf

    model = compiled(hvd, keras)
    callback = keras.callbacks.ReduceLROnPlateau()
    callback.set_model(model)
    for value in (callback, [model], {"a": model.optimizer}, [model.layers[0]]):
        with pytest.raises(TypeError, match=r"TensorFlowState\(mine=\.\.\.\) is a .* holds a .*Pass its variables"):
            job.elastic.TensorFlowState([tf.Variable(1.0)], mine=value)
    assert job.elastic.TensorFlowState([tf.Variable(1.0)], mine=[1, np.ones(2)]).mine[0] == 1


def test_tensorflow_state_of_a_session(job):
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=1.0 + job.rank())
        session.run(tf.compat.v1.global_variables_initializer())
        state = job.elastic.TensorFlowState(session=session, batch=job.rank())
        state.sync()
        assert session.run(variable) == 1.0 and state.batch == 0
        variable.load(5.0, session)
        state.restore()
        assert session.run(variable) == 1.0


def test_other_errors_of_tensorflow_go_through(job):
    import tensorflow as tf

    @job.elastic.run
    def train(state):
        raise tf.errors.UnknownError(None, None, "a file cannot be read")

    with pytest.raises(tf.errors.UnknownError, match="file"):
        train(job.elastic.TensorFlowState([tf.Variable(1.0)]))
