"""The code that :mod:`horovod.keras` and :mod:`horovod.tensorflow.keras` share.

Both have the same functions, each for one module of Keras: ``keras``, which may run on TensorFlow, PyTorch or JAX, and
``tf.keras``. The code that depends on the framework is in one module for each framework (:mod:`._tensorflow`,
:mod:`._torch`, :mod:`._jax`); all have the names that :mod:`._frameworks` lists. Nothing here imports a framework
before it knows which one is meant.
"""
