"""Horovod for MXNet, which gorovod does not have. The import fails, and says why and what to do."""

raise ModuleNotFoundError(
    "gorovod has no horovod.mxnet: Apache MXNet was retired in 2023, and its last wheel, 1.9.1, cannot be imported "
    "with NumPy 1.24 or later. Port the model to PyTorch, TensorFlow, Keras or JAX (horovod.torch, horovod.tensorflow, "
    "horovod.keras, horovod.jax); until then keep Horovod 0.28.1 with mxnet 1.9.1 and numpy<1.24 in an environment "
    "of its own.",
    name=__name__,
)
