"""What :mod:`horovod.keras` and :mod:`horovod.tensorflow.keras` have in common.

Both are the same for one module of Keras each: ``keras``, which may run on TensorFlow, PyTorch or JAX, and
``tf.keras``. What depends on the framework underneath is in one module for each of them (:mod:`._tensorflow`,
:mod:`._torch`, :mod:`._jax`), all with the names that :mod:`._frameworks` lists. Nothing here imports a framework
before it is known which one is meant.
"""
