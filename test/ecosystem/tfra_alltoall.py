"""TFRA's HvdAllToAllEmbedding over gorovod: each rank holds the rows of its keys, and all look them up and train them.

After as many steps the table of two ranks is that of one process which has seen all samples.
"""

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons as tfra
from tensorflow_recommenders_addons.dynamic_embedding.python.keras.layers import HvdAllToAllEmbedding

import horovod.tensorflow as hvd

de = tfra.dynamic_embedding
KEYS, WIDTH, SAMPLES, STEPS, RATE = 40, 4, 32, 5, 0.5

hvd.init()
assert hvd.size() == 2
ids = np.random.default_rng(1).integers(0, KEYS, SAMPLES).astype(np.int64)
mine = tf.constant(ids[hvd.rank() :: 2])
layer = HvdAllToAllEmbedding(
    embedding_size=WIDTH, key_dtype=tf.int64, value_dtype=tf.float32, name="table",
    initializer=tf.keras.initializers.Ones(),
)  # fmt: skip
optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.legacy.SGD(RATE))

for _ in range(STEPS):
    with tf.GradientTape() as tape:
        # Each key wants to be its own number.
        wanted = tf.cast(mine, tf.float32)[:, None]
        loss = tf.reduce_sum((layer(mine) - wanted) ** 2) / SAMPLES
    gradients = tape.gradient(loss, layer.trainable_variables)
    optimizer.apply_gradients(zip(gradients, layer.trainable_variables))

counts = np.bincount(ids, minlength=KEYS)
expected = np.ones(KEYS)
for _ in range(STEPS):
    expected -= RATE * 2 * counts * (expected - np.arange(KEYS)) / SAMPLES
found = layer(tf.constant(ids)).numpy()
np.testing.assert_allclose(found, np.repeat(expected[ids][:, None], WIDTH, axis=1), rtol=1e-5)

held = set(layer.params.export()[0].numpy().tolist())
every = hvd.allgather_object(held)
assert every[0].isdisjoint(every[1]) and every[0] | every[1] == set(ids.tolist()), every
hvd.join()
if hvd.rank() == 0:
    print(f"passed: {len(every[0])} keys on rank 0, {len(every[1])} on rank 1, after {STEPS} steps", flush=True)
hvd.shutdown()
