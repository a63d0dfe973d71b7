"""Operations without hvd.init(): prints each error."""

import tensorflow as tf

import horovod.tensorflow as hvd

for function in (
    lambda: hvd.allreduce(tf.ones(2)),
    lambda: hvd.grouped_allgather([tf.ones(2)]),
    tf.function(lambda: hvd.broadcast(tf.ones(2), 0)),
    lambda: hvd.rank_op(),
    lambda: hvd.join(),
    lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0),
):
    try:
        function()
        print("no error")
    except tf.errors.FailedPreconditionError as e:
        print("error:", e.message)
try:
    hvd.rank()
except ValueError as e:
    print("error:", e)
